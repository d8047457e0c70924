"""What is asked of a model: each kind of task turns a model, and the documents that it is asked about, into scores of every unit."""
