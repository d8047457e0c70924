"""FLOPs, laws of the loss, their fits, and what they recommend for a budget."""
