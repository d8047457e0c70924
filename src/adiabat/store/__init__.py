"""Stored document vectors: building, importing, opening and searching them; BM25."""
