"""Paired statistics, ranking measures, intervals and tests."""
