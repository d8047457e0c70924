"""Towers in the formats of other programs, each compared with the model's own vectors."""
