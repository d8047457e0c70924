"""Training both towers of a dual encoder: data, objective, the job, and what a run will cost."""
