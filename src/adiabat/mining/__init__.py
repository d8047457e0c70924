"""Hard negatives, proposed by BM25 or vectors, without false negatives."""
