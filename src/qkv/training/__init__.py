"""Training: tasks, recipes, optimizers, the loop and its checkpoints.

From the command to the gradient: `train` makes a `Run` (launch.py), `prepare` reads the data and
fills in the recipe (prepare.py), the run yields steps and evaluations (run.py), and the trainer
computes a loss, its gradient and an update (trainer.py, optimizer.py). What is specific to a job
is in its file in tasks/.
"""

from qkv.training.forecast import Forecast, forecast
from qkv.training.launch import train, train_args
from qkv.training.optimizer import Constant
from qkv.training.prepare import TrainArgs, prepare
from qkv.training.recipe import Recipe, read_recipe, read_settings
from qkv.training.run import (
    METRICS,
    RECIPE,
    Evaluation,
    Event,
    Finished,
    Run,
    begin,
    read_summary,
    reopen,
)
from qkv.training.trainer import Step, Trainer

__all__ = [
    "METRICS",
    "RECIPE",
    "Constant",
    "Evaluation",
    "Event",
    "Finished",
    "Forecast",
    "Recipe",
    "Run",
    "Step",
    "TrainArgs",
    "Trainer",
    "begin",
    "forecast",
    "prepare",
    "read_recipe",
    "read_settings",
    "read_summary",
    "reopen",
    "train",
    "train_args",
]
