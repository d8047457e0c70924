"""Sweeps: the same training at several sizes, budgets and methods, a row for each run."""
