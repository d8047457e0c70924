"""Which data set, which backbone: the same short run on each candidate, measured on the same tasks (missions D7, D8)."""
