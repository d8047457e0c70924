"""Sweeps, scaling experiments, plans and rate searches."""
