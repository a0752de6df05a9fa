"""What a model is trained for: a task reads its data, computes its loss and measures the result.

One task is one file. A subclass of `Task` registers itself under its `kind`, in this package or in
a notebook, and can then be trained by that name:

    class Reverse(Task):
        kind: Literal["reverse"] = "reverse"
        ...

    qkv.train("reverse", "words.csv", output="runs/reverse")

The fields of a task are its hyperparameters, the [task] table of a recipe. Its class attributes
describe the job: which columns it reads, which presets it offers, what is printed about it.
"""

import hashlib
import shlex
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Generic, Protocol, Self, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor

from qkv.bundle import AlignmentHeads, Bundle
from qkv.errors import DataError, TrainingError, UsageError, unknown
from qkv.model import Config, Model, ModelConfig, PartConfig
from qkv.report import Table
from qkv.text import Tokenizer
from qkv.training.optimizer import AdamW, Linear, MuonAdamW, Schedule

if TYPE_CHECKING:
    from qkv.training.recipe import Recipe

Ids = NDArray[np.int64]
Names = Annotated[tuple[str, ...], Field(strict=False)]  # TOML has lists, not tuples

COLUMNS = ("text", "label", "source", "target", "score")

CHARACTERS_PER_TOKEN = 4  # roughly, for English
MIN_STEPS_PER_EPOCH = 16
MIN_BATCH_TOKENS = 128

MAX_WORST = 10  # examples shown in a report
MAX_CELL_CHARACTERS = 300  # of a text in a report


class DataConfig(Config):
    """Which examples: a built-in corpus or files, and what they held when the recipe was made.

    A column is a name or a number from 1. Without files, source and target are two parallel files.
    """

    files: Names = ()  # none: the built-in corpus
    text: str | None = None
    label: str | None = None
    source: str | None = None
    target: str | None = None
    score: str | None = None
    validation: Names = ()  # files; none: a fraction of the training files is split off
    validation_fraction: Annotated[float, Field(gt=0.0, lt=1.0)] = 0.1
    skip_bad: bool = False  # leave out rows that cannot be used, and list them
    bidirectional: bool = False  # each pair also in the other direction; for translate
    sha256: str = ""  # of the examples; empty: not read yet


class Batch(Protocol):
    """The tensors of one step, or of one micro-batch of it."""

    @property
    def num_tokens(self) -> int:
        """Tokens the model reads, padding excluded."""
        ...

    @property
    def num_targets(self) -> int:
        """Targets the loss is summed over, and divided by."""
        ...

    def to(self, device: torch.device) -> Self: ...


E_ = TypeVar("E_")
T_ = TypeVar("T_")


@dataclass(frozen=True)
class Split(Generic[E_]):
    """Training and validation examples, the hash of all of them, and what was odd about them."""

    train: Sequence[E_]
    validation: Sequence[E_]
    sha256: str
    remarks: tuple[str, ...] = ()


@dataclass(frozen=True)
class Metric:
    """The validation metric by which the best checkpoint is chosen."""

    name: str
    higher_is_better: bool

    def better(self, new: float, old: float | None) -> bool:
        if old is None:
            return True
        if self.higher_is_better:
            return new > old
        return new < old


Cell = str | float | bool


@dataclass(frozen=True)
class Predictions:
    """Every example with what the model made of it, the worst first.

    mistakes: how many rows from the top are wrong; None where they are only better or worse.
    summary: the columns that a report shows.
    """

    title: str  # of the worst ones
    columns: tuple[str, ...]
    rows: Sequence[tuple[Cell, ...]]
    summary: tuple[str, ...]
    mistakes: int | None = None

    def worst(self, count: int) -> Sequence[tuple[Cell, ...]]:
        """At most `count` of the worst examples; of mistakes only those."""
        if self.mistakes is not None:
            count = min(count, self.mistakes)
        return self.rows[:count]

    def records(self, rows: Sequence[tuple[Cell, ...]]) -> list[dict[str, Cell]]:
        """These rows by column name."""
        return [dict(zip(self.columns, row, strict=True)) for row in rows]

    def table(self, count: int = MAX_WORST) -> Table:
        """The summary of the worst examples as text, for a report."""
        indices = [self.columns.index(name) for name in self.summary]
        titles = tuple(name.replace("_", " ") for name in self.summary)
        rows = []
        for row in self.worst(count):
            rows.append(tuple(_cell_text(row[i]) for i in indices))
        return Table(self.title, titles, tuple(rows))


def _cell_text(cell: Cell) -> str:
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    if isinstance(cell, float):
        return f"{cell:.3f}"
    line = " ".join(cell.split())
    if len(line) > MAX_CELL_CHARACTERS:
        return f"{line[:MAX_CELL_CHARACTERS]}…"
    return line


@dataclass(frozen=True)
class EvalResult:
    """The metrics of a model on some examples, with those of a baseline where there is one.

    intervals: the 95 % confidence interval of a metric, where it has one.
    """

    scores: Mapping[str, float]
    examples: int
    baseline: Mapping[str, float] = field(default_factory=dict)
    baseline_name: str = ""
    other_baselines: Mapping[str, Mapping[str, float]] = field(default_factory=dict)  # by name
    labels: tuple[str, ...] = ()
    confusion: Sequence[Sequence[int]] = ()
    signatures: Mapping[str, str] = field(default_factory=dict)
    samples: tuple[Table, ...] = ()
    remarks: tuple[str, ...] = ()  # such as texts that were truncated
    complete: bool = True  # nothing was left out for lack of time
    predictions: Predictions | None = None  # None: not measured example by example
    intervals: Mapping[str, tuple[float, float]] = field(default_factory=dict)

    def with_remarks(self, remarks: Iterable[str]) -> "EvalResult":
        """The same result, with these remarks before its own."""
        return replace(self, remarks=(*remarks, *self.remarks))


class DataModule(ABC):
    """The examples of a run: batches to train on, and the validation of the model."""

    metric: Metric
    lengths: Ids  # tokens of each training example, or of each document
    facts: list[tuple[str, str]]  # about the data, for the report
    remarks: list[str]  # worth knowing: texts truncated or left out, duplicates in validation
    deadline: float | None = None  # of an evaluation, by `time.perf_counter`; none: no limit

    def prepare_model(self, model: Any) -> None:  # noqa: B027
        """Called once before the first step, for example to freeze some of the weights."""

    @abstractmethod
    def batch_indices(self, epoch: int) -> list[Ids]:
        """The example indices of each batch of an epoch; a pure function of seed and epoch."""

    @abstractmethod
    def batch(self, indices: Ids, rng: np.random.Generator, epoch: int = 0) -> Batch:
        """The tensors of these examples in that epoch; a pure function of its arguments."""

    @abstractmethod
    def validate(self, model: Any) -> dict[str, float]:
        """The validation metrics, computed fast; `metric.name` is one of them.

        Where it takes long it looks at fewer examples, to end before the `deadline`; some time
        after that it is interrupted, and there are no metrics.
        """

    def warm_up(self, model: Any) -> None:
        """About as much work as `validate` will be on a trained model, to time it."""
        self.validate(model)

    @abstractmethod
    def sample(self, model: Any) -> str:
        """Some output of the model at this point, so that people can watch it learn."""

    @abstractmethod
    def evaluate(self, model: Any) -> EvalResult:
        """All validation examples, with the baseline and samples, for the report.

        What the `deadline` leaves no time for is left out, with a remark.
        """

    def alignment(self, model: Any) -> AlignmentHeads | None:
        """Of a translator, the cross attention that aligns words best; else None."""
        return None


class Task(PartConfig):
    """The base of all tasks. A subclass with a default `kind` is registered under it."""

    # What the command line, the report and `qkv plan` print.
    title: ClassVar[str]  # of the report, as in "A text classifier"
    summary: ClassVar[str]  # the line in `qkv train --help`
    measures: ClassVar[str]  # the line in `qkv evaluate --help`: metrics; baseline
    usage: ClassVar[tuple[str, ...]]  # commands that measure the model, {0} is its directory
    next_steps: ClassVar[tuple[str, ...]] = ()  # commands that use it, in the same form
    columns: ClassVar[tuple[str, ...]]  # that it reads from a table
    ranks_examples: ClassVar[bool] = False  # whether `evaluate` returns predictions
    synthetic_corpus: ClassVar[bool] = False  # whether the built-in corpus is made by a grammar

    # The model.
    architecture: ClassVar[str]  # the `kind` of model config it needs
    presets: ClassVar[str]  # sizes are presets: classify-tiny, classify-small, classify-medium

    # What it can do besides.
    supports_bpe_dropout: ClassVar[bool] = False
    supports_bidirectional: ClassVar[bool] = False

    # Defaults of a recipe.
    tokenizer_kind: ClassVar[str] = "bpe"
    max_vocab_size: ClassVar[int | None] = None  # none: that of the preset
    max_batch: ClassVar[int] = 2048  # tokens per step
    max_steps: ClassVar[int] = 1000
    epochs: ClassVar[float | None] = None  # none: max_steps
    ema: ClassVar[float] = 0.0
    patience: ClassVar[int] = 0
    finetune_lr: ClassVar[float] = 0.04  # of AdamW, divided by the width of the model
    finetune_ema: ClassVar[float] = 0.0

    @classmethod
    def commands(cls, directory: Path) -> tuple[str, ...]:
        """Commands that use, explain and measure the model in this directory."""
        quoted = shlex.quote(str(directory))
        return tuple(command.format(quoted) for command in (*cls.next_steps, *cls.usage))

    @classmethod
    def name(cls) -> str:
        return str(cls.model_fields["kind"].default)

    @abstractmethod
    def loss(self, model: Any, batch: Any) -> Tensor:
        """The loss summed over all targets of the batch."""

    @classmethod
    @abstractmethod
    def load(cls, data: DataConfig, seed: int) -> Any:
        """The examples of the data, split into training and validation; has a `sha256`."""

    @classmethod
    @abstractmethod
    def texts(cls, split: Any) -> Iterable[str]:
        """The texts a tokenizer is trained on: those of the training examples."""

    @classmethod
    def for_data(cls, split: Any) -> Self:
        """The task with default hyperparameters for these examples."""
        return cls()  # type: ignore[call-arg]

    def for_finetuning(self) -> Self:
        """The task where the model is fine-tuned, with the defaults that differ there."""
        return self

    @abstractmethod
    def data_module(self, split: Any, tokenizer: Tokenizer, recipe: "Recipe") -> DataModule:
        """The examples, tokenized and ready to train on."""

    @classmethod
    @abstractmethod
    def evaluate(cls, bundle: Bundle, data: DataConfig, recipe: "Recipe | None") -> EvalResult:
        """The metrics of a trained model on other data; the recipe says how it was trained."""

    @classmethod
    @abstractmethod
    def matches(cls, model: Model) -> bool:
        """Whether the model was made for this task."""

    @classmethod
    def output(cls, config: ModelConfig, split: Any) -> Any:
        """The config of the output layer for these examples."""
        return config.output

    @classmethod
    def fit_config(cls, config: ModelConfig, vocab_size: int, split: Any) -> ModelConfig:
        """The model config with the vocabulary and output layer these examples need."""
        if config.kind != cls.architecture:
            raise _wrong_architecture(cls, config)
        # model_copy does not validate: the recipe that takes this config in does.
        embedding = config.embedding.model_copy(update={"vocabulary": vocab_size})
        output = cls.output(config, split)
        return config.model_copy(update={"embedding": embedding, "output": output})

    @classmethod
    def default_batch(cls, split: Any) -> int:
        """Tokens per step: fewer for small data, so that an epoch has several steps."""
        tokens = sum(map(len, cls.texts(split))) // CHARACTERS_PER_TOKEN
        return max(MIN_BATCH_TOKENS, min(cls.max_batch, tokens // MIN_STEPS_PER_EPOCH))

    @classmethod
    def default_optimizer(cls) -> AdamW | MuonAdamW:
        return MuonAdamW()

    @classmethod
    def default_schedule(cls) -> Schedule:
        return Linear()


def find_task(name: str) -> type[Task]:
    """The task of that name; raises a UsageError with the closest one."""
    tasks = Task.variants()
    if name not in tasks:
        raise UsageError(unknown("job", name, tasks))
    return tasks[name]


def task_for(model: Model) -> type[Task]:
    """The task the model was made for, by its output layer."""
    tasks = Task.variants()
    for task in tasks.values():
        if task.matches(model):
            return task
    raise TrainingError(f"this model was made for none of the tasks {', '.join(tasks)}")


SHORT_OF_TIME = "measured on the first part of the validation text: there was no time for more"

ARCHITECTURES = {
    "encoder_only": "an encoder",
    "decoder_only": "a decoder",
    "encoder_decoder": "an encoder–decoder",
}


def _wrong_architecture(task: type[Task], config: ModelConfig) -> TrainingError:
    tasks = Task.variants()
    suitable = [name for name, other in tasks.items() if other.architecture == config.kind]
    options = " or ".join(suitable) or "nothing"
    if len(suitable) > 2:
        options = f"{', '.join(suitable[:-1])} or {suitable[-1]}"
    return TrainingError(
        f"{task.name()} needs {ARCHITECTURES[task.architecture]}, but this model is "
        f"{ARCHITECTURES[config.kind]}; it can learn {options}"
    )


def check_columns(task: type[Task], data: DataConfig) -> None:
    """Raises a DataError if a column is named that the task does not read."""
    for column in COLUMNS:
        if getattr(data, column) is not None and column not in task.columns:
            raise DataError(
                f"{column}={getattr(data, column)!r} is not for {task.name()}; "
                f"it reads {' and '.join(task.columns)}"
            )


def until(deadline: float | None, batches: Iterable[T_]) -> Iterator[T_]:
    """The batches; none after the deadline, by `time.perf_counter`, but always the first one."""
    for batch in batches:
        yield batch
        if is_over(deadline):
            return


def is_over(deadline: float | None) -> bool:
    return deadline is not None and time.perf_counter() > deadline


def to_device(tensor: Tensor | None, device: torch.device) -> Tensor | None:
    """The optional tensor of a batch on that device."""
    if tensor is None:
        return None
    return tensor.to(device)


def fingerprint(texts: Iterable[str]) -> str:
    """A SHA-256 that is the same for the same texts in the same order."""
    digest = hashlib.sha256()
    for text in texts:
        content = text.encode("utf-8", "surrogatepass")
        # The length keeps ("ab", "c") and ("a", "bc") apart.
        digest.update(len(content).to_bytes(8, "big") + content)
    return digest.hexdigest()


def cache_key(sha256: str, part: str, recipe: "Recipe") -> str:
    """Names a part of the examples in the token cache: seed and fraction decide what is in it."""
    return f"{sha256}-{part}-{recipe.seed}-{recipe.data.validation_fraction}"


def paths(files: Sequence[str]) -> list[Path]:
    return [Path(file) for file in files]
