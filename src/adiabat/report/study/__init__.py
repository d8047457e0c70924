"""Studies: their record, page, tables and figures."""
