"""Metrics, statistics and the tasks they are measured on."""
