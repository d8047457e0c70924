"""What tuning does to texts that nobody labelled: probes, and how far they move (mission A12)."""
