"""Distillation: small students of a teacher."""
