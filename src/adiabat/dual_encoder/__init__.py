"""Training of both towers on pairs of texts."""
