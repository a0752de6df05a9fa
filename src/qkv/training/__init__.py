"""Training: recipes, optimisers, the loop, checkpoints, and what a run leaves behind."""
