"""Comparisons: their page, pictures and tables."""
