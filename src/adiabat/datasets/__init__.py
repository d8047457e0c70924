"""Makers of known data sets, and the demo data."""
