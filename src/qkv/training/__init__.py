"""Training: tasks, recipes, optimizers, the loop and its checkpoints.

From the command to the gradient: `train` makes a `Run` (launch.py), `prepare` reads the data and
fills in the recipe (prepare.py), the run yields steps and evaluations (run.py), and the trainer
computes a loss, its gradient and an update (trainer.py, optimizer.py). What is specific to a job
is in its file in tasks/.
"""

from qkv.training.checkpoint import Progress, read_progress
from qkv.training.forecast import Forecast, forecast
from qkv.training.launch import reopen, train, train_args
from qkv.training.optimizer import Constant
from qkv.training.prepare import TrainArgs, prepare
from qkv.training.recipe import Recipe, read_recipe, read_settings
from qkv.training.run import Evaluation, Event, Finished, Run
from qkv.training.run_directory import (
    CHECKPOINTS,
    METRICS,
    RECIPE,
    begin,
    count_evaluations,
    read_scores,
    read_summary,
)
from qkv.training.trainer import Step, Trainer

__all__ = [
    "CHECKPOINTS",
    "METRICS",
    "RECIPE",
    "Constant",
    "Evaluation",
    "Event",
    "Finished",
    "Forecast",
    "Progress",
    "Recipe",
    "Run",
    "Step",
    "TrainArgs",
    "Trainer",
    "begin",
    "count_evaluations",
    "forecast",
    "prepare",
    "read_progress",
    "read_recipe",
    "read_scores",
    "read_settings",
    "read_summary",
    "reopen",
    "train",
    "train_args",
]
