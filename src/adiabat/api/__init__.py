"""What `adiabat` exports: one file a verb."""
