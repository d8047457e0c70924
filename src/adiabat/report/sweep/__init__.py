"""Sweeps, and plans made from their runs: their page, figures and tables."""
