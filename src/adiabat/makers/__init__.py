"""Makers of the mission's data sets, each from the files that their publishers give out (mission A10)."""
