"""Profiles of data sets: counts, lengths, languages and faults."""
