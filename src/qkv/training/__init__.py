"""Training: tasks, recipes, optimizers, the loop and its checkpoints.

From the command to the gradient: `train` makes a `Run` (train.py), `prepare` reads the data and
fills in the recipe (prepare.py), the run yields steps and evaluations (run.py), and the trainer
computes a loss, its gradient and an update (trainer.py, optimizer.py). What is specific to a job
is in its file in tasks/.
"""
