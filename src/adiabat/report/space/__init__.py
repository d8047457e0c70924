"""Analyses of the space of vectors: their page, pictures and tables."""
