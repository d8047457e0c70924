"""Studies: one tuning run after another over a grid of settings, each measured on the same tasks and probes."""
