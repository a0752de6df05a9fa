"""The tasks a model can be trained for, one file each; importing this registers all of them."""

# isort: off
# In the order in which help and messages list them.
from qkv.training.tasks.language import LanguageTask
from qkv.training.tasks.masked import MaskedTask
from qkv.training.tasks.classify import ClassifyTask
from qkv.training.tasks.translate import TranslateTask
from qkv.training.tasks.embed import EmbedTask

# isort: on
from qkv.training.tasks.task import (
    Batch,
    DataConfig,
    DataModule,
    EvalResult,
    Metric,
    Split,
    Task,
    check_columns,
    find_task,
    task_for,
)

__all__ = [
    "Batch",
    "ClassifyTask",
    "DataConfig",
    "DataModule",
    "EmbedTask",
    "EvalResult",
    "LanguageTask",
    "MaskedTask",
    "Metric",
    "Split",
    "Task",
    "TranslateTask",
    "check_columns",
    "find_task",
    "task_for",
]
