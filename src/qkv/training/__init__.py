"""Training: recipes, optimizers, the loop, checkpoints, and what a run leaves behind."""
