"""Encoders and towers: loading, pooling, projections, freezing, saving."""
