"""The tasks a model can be trained for, one file each; importing this registers all of them."""

# isort: off
# In the order in which help and messages list them.
from qkv.training.tasks.language import LanguageTask
from qkv.training.tasks.masked import MaskedTask
from qkv.training.tasks.classify import ClassifyTask
from qkv.training.tasks.translate import TranslateTask
from qkv.training.tasks.embed import EmbedTask

# isort: on
from qkv.training.tasks.classify import LabelledBatch
from qkv.training.tasks.embed import ContrastiveBatch
from qkv.training.tasks.masked import MaskedBatch
from qkv.training.tasks.task import (
    Batch,
    DataConfig,
    DataModule,
    EvalResult,
    Metric,
    Predictions,
    Split,
    Task,
    check_columns,
    find_task,
    task_for,
)
from qkv.training.tasks.text_stream import Windows, windows
from qkv.training.tasks.translate import TranslationBatch

__all__ = [
    "Batch",
    "ClassifyTask",
    "ContrastiveBatch",
    "DataConfig",
    "DataModule",
    "EmbedTask",
    "EvalResult",
    "LabelledBatch",
    "LanguageTask",
    "MaskedBatch",
    "MaskedTask",
    "Metric",
    "Predictions",
    "Split",
    "Task",
    "TranslateTask",
    "TranslationBatch",
    "Windows",
    "check_columns",
    "find_task",
    "task_for",
    "windows",
]
