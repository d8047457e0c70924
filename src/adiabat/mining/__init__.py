"""Hard negatives for training: proposed by BM25 or by vectors, rid of what answers the query all the same."""
