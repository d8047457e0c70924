"""The training core: losses, schedules, checkpoints and the one loop."""
