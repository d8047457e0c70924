"""Encoders: backbone, pooling, projection, normalisation; freezing by name; loading and saving."""
