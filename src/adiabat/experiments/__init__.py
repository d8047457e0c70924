"""Grids of runs, scaling runs, plans and rate searches."""
