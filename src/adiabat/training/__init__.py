"""The training loop, gradient cache, checkpoints, optimizers and processes."""
