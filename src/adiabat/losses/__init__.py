"""Losses: pure functions over embeddings."""
