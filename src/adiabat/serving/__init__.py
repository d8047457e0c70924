"""Query towers of one store behind HTTP: embeddings, search, and a page that compares them."""
