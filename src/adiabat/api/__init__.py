"""What `adiabat` exports: the verbs of the command line as functions."""
