"""Readers of the field's data formats, and the records they yield."""
