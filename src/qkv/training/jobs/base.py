"""What makes a job: how its examples are read, and what is planned for them."""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Generic, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from qkv.bundle import Bundle
from qkv.errors import DataError, TrainingError
from qkv.model import Model, ModelConfig
from qkv.report import Table
from qkv.tasks.token_tasks import Batch
from qkv.text import Tokenizer
from qkv.training.optimizer import AdamW, Linear, MuonAdamW, Schedule
from qkv.training.recipe import Data, Recipe, TaskChoice

# FOLDED train/data_module: What a run learns from and is judged by, whichever of the five jobs it
#   is.
# FOLDED train/job/suited: Which jobs a family of models can be trained for, said where another
#   was asked for.

Ids = NDArray[np.int64]

T = TypeVar("T")


@dataclass(frozen=True)
class Parts(Generic[T]):
    """The examples to learn from, those held out, and the hash of all of them."""

    train: Sequence[T]
    validation: Sequence[T]
    sha256: str


@dataclass(frozen=True)
class Metric:
    """The number a run tries to better."""

    name: str
    higher_is_better: bool

    def better(self, new: float, old: float | None) -> bool:
        if old is None:
            return True
        return new > old if self.higher_is_better else new < old


@dataclass(frozen=True)
class EvalResult:
    """How well a model does on some examples, with a baseline beside it if there is one."""

    scores: Mapping[str, float]
    examples: int
    baseline: Mapping[str, float] = field(default_factory=dict)
    baseline_is: str = ""
    labels: tuple[str, ...] = ()
    confusion: Sequence[Sequence[int]] = ()
    signatures: Mapping[str, str] = field(default_factory=dict)
    samples: tuple[Table, ...] = ()
    remarks: tuple[str, ...] = ()  # what a person should know of how it was measured


class DataModule(ABC):
    """A job's examples, made ready for one run."""

    metric: Metric
    lengths: Ids  # tokens of each training example, or of each document
    facts: list[tuple[str, str]]  # of the data, for the report
    remarks: list[str]  # what a person should know: texts cut or left out, texts in both parts

    def begin(self, model: Any) -> None:  # noqa: B027
        """Before the first step: what has to be done to the model, if anything."""

    @abstractmethod
    def order(self, epoch: int) -> list[Ids]:
        """The batches of one epoch as numbers of examples; a pure function of seed and epoch."""

    @abstractmethod
    def batch(self, numbers: Ids, draws: np.random.Generator, epoch: int = 0) -> Batch:
        """The tensors of some examples as they are read in that epoch; a pure function of all."""

    @abstractmethod
    def validate(self, model: Any) -> dict[str, float]:
        """The metrics on the held-out part, quickly; the watched one among them."""

    def warm_up(self, model: Any) -> None:
        """As much work as `evaluate` will be once the model has learnt something."""
        self.validate(model)

    @abstractmethod
    def sample(self, model: Any) -> str:
        """Something the model says now, for a person to see it learn."""

    @abstractmethod
    def evaluate(self, model: Any) -> EvalResult:
        """The held-out part in full, with the baseline: what the report shows."""


CHARACTERS_A_TOKEN = 4  # about

STEPS_AN_EPOCH, LEAST_BATCH = 16, 128


class Loaded(Protocol):
    """Examples in two parts, and the hash of all of them."""

    @property
    def sha256(self) -> str: ...


P = TypeVar("P", bound=Loaded)


class Job(ABC, Generic[P]):
    """One of the five. Adding one is adding a file and a line in `JOBS`."""

    name: ClassVar[str]
    title: ClassVar[str]  # what comes out, for people: "A sentiment classifier"
    roles: ClassVar[tuple[str, ...]]  # columns it reads
    tokens: ClassVar[str] = "bpe"  # the tokenizer it is best served by
    vocabulary: ClassVar[int | None] = None  # at most; none: that of the model's size
    batch: ClassVar[int] = 2048  # tokens a step, at most if nothing is said
    steps: ClassVar[int] = 1000  # at most if nothing is said
    epochs: ClassVar[float | None] = None  # if nothing is said; none: as many steps as above
    synthetic: ClassVar[bool] = False  # its built-in corpus
    noisy: ClassVar[bool] = False  # whether its texts can be cut anew in every epoch
    turns: ClassVar[bool] = False  # whether its examples can also be read the other way round
    ema: ClassVar[float] = 0.0
    patience: ClassVar[int] = 0
    tuned_lr: ClassVar[float] = 0.04  # of AdamW, times the width, where a model goes on learning
    tuned_ema: ClassVar[float] = 0.0  # and the running mean of its weights

    @abstractmethod
    def load(self, data: Data, seed: int) -> P:
        """The examples the data names, in two parts."""

    @abstractmethod
    def texts(self, parts: P) -> Iterable[str]:
        """What a tokenizer is learnt from: the training part only."""

    @abstractmethod
    def task(self, parts: P) -> TaskChoice:
        """The task with its defaults for such examples."""

    @abstractmethod
    def fit(self, config: ModelConfig, vocabulary: int, parts: P) -> ModelConfig:
        """The model for these examples: its vocabulary, and an output for this job."""

    @abstractmethod
    def data_module(self, parts: P, tokenizer: Tokenizer, recipe: Recipe) -> DataModule:
        """The examples made ready for a run."""

    @abstractmethod
    def evaluate(self, bundle: Bundle, data: Data, recipe: Recipe | None) -> EvalResult:
        """How well a finished model does on other data; the recipe tells what it learnt from."""

    def usual_batch(self, parts: P) -> int:
        """Tokens a step: fewer where there are few examples, so that an epoch has some steps."""
        tokens = sum(map(len, self.texts(parts))) // CHARACTERS_A_TOKEN
        return max(LEAST_BATCH, min(self.batch, tokens // STEPS_AN_EPOCH))

    def optimizer(self) -> AdamW | MuonAdamW:
        return MuonAdamW()

    def schedule(self) -> Schedule:
        return Linear()

    @abstractmethod
    def answers(self, model: Model) -> bool:
        """Whether that model does this job."""


def fingerprint(texts: Iterable[str]) -> str:
    """The same for the same texts in the same order."""
    digest = hashlib.sha256()
    for text in texts:
        content = text.encode("utf-8", "surrogatepass")
        digest.update(len(content).to_bytes(8, "big") + content)
    return digest.hexdigest()


def part_key(examples: Loaded, part: str, recipe: Recipe) -> str:
    """Names a part of the examples in the token cache: seed and share decide what is in it."""
    return f"{examples.sha256}-{part}-{recipe.seed}-{recipe.data.validation_fraction}"


def paths(files: Sequence[str]) -> list[Path]:
    return [Path(file) for file in files]


def refuse_roles(job: Job[P], data: Data) -> None:
    """A column that this job does not read was named: say so rather than ignore it."""
    for role in ("text", "label", "source", "target", "score"):
        if getattr(data, role) is not None and role not in job.roles:
            raise DataError(f"--{role} is not for {job.name}; it reads {' and '.join(job.roles)}")


FAMILY = {
    "encoder_only": ("an encoder", "masked, classify or embed"),
    "decoder_only": ("a decoder", "language"),
    "encoder_decoder": ("an encoder–decoder", "translate"),
}


def unsuited(job: str, needs: str, config: ModelConfig) -> TrainingError:
    """What the job needs, what the model is, and what it can learn."""
    it_is, suits = FAMILY[config.kind]
    return TrainingError(
        f"{job} needs {FAMILY[needs][0]}, but this model is {it_is}; it can learn {suits}"
    )
