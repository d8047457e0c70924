"""Tuning of a query tower against stored document vectors."""
