"""What `adiabat` exports: the verbs of the command line as functions.

All raise TypeError for an argument of a type that is not listed, and for a keyword that names no setting.
"""
