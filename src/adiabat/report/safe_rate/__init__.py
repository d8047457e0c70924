"""Searches for the largest safe rate: their page, figures and tables."""
