"""The embedded default: a real model, real data, and the job that `adiabat demo` runs on them."""
