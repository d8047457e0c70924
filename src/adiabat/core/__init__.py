"""Errors, files, checksums, locks, progress and text: what every room uses."""
