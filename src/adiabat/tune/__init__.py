"""Adiabatic tuning of a query tower against stored document vectors."""
