"""Suites: their record, page and tables."""
