"""Run directories: configuration, locks, resuming and finishing."""
