"""What a run learns from and is judged by, whichever of the five jobs it is."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from qkv.report import Table
from qkv.task.task import Batch

Ids = NDArray[np.int64]
T = TypeVar("T")


@dataclass(frozen=True)
class Parts(Generic[T]):
    """The examples to learn from, those held out, and the hash of all of them."""

    train: Sequence[T]
    held_out: Sequence[T]
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
class Judged:
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


class Lesson(ABC):
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
    def evaluate(self, model: Any) -> dict[str, float]:
        """The metrics on the held-out part, quickly; the watched one among them."""

    def rehearse(self, model: Any) -> None:
        """As much work as `evaluate` will be once the model has learnt something."""
        self.evaluate(model)

    @abstractmethod
    def sample(self, model: Any) -> str:
        """Something the model says now, for a person to see it learn."""

    @abstractmethod
    def judge(self, model: Any) -> Judged:
        """The held-out part in full, with the baseline: what the report shows."""
