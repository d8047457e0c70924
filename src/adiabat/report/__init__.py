"""Pages, tables and figures, made only from results."""
