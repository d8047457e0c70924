"""Several models on several tasks: what was read, what was scored and kept, and who is better than whom."""
