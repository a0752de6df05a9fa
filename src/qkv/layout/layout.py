"""What a public layout answers: its shape as one of our configs, and its names for our tensors.

Adding a layout is adding a file with one of these and a line in `LAYOUTS`.
"""

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from typing import Any, ClassVar

from qkv.errors import ConfigError
from qkv.layout.given import Given
from qkv.layout.names import Table
from qkv.model.family import Config


class OtherFamilyError(ConfigError):
    """A layout for encoders is asked to say a decoder, or the like."""


class Layout(ABC):
    """One way in which public checkpoints write a model down."""

    kinds: ClassVar[tuple[str, ...]]  # the `model_type`s it reads; it writes the first
    title: ClassVar[str]  # for people: "BERT and sentence encoders on it"
    prefix: ClassVar[str] = ""  # before every tensor of the body, unless a body alone was saved
    head: ClassVar[tuple[str, ...]] = ()  # beginnings of tensor names that have no prefix
    leftovers: ClassVar[tuple[str, ...]] = ()  # tensors no model needs, as regular expressions
    architectures: ClassVar[tuple[str, ...]]  # the classes it knows, as endings of their names

    @abstractmethod
    def config(self, given: Given, tensors: Collection[str]) -> Config:
        """Our config for theirs; `tensors` are the names in the file, without the prefix."""

    @abstractmethod
    def fields(self, config: Config) -> dict[str, Any]:
        """Their config.json for ours, as well as it can be said: `config` of it shows how well."""

    @abstractmethod
    def table(self, config: Config) -> Table:
        """Their name for each of our tensors."""

    def twins(self, config: Config) -> Mapping[str, str]:
        """Tensors that are another one under a second name: that name to the first."""
        return {}

    def copies(self, config: Config) -> Mapping[str, str]:
        """Twins that other programs want to find in the file as well."""
        return {}

    def unused(self, config: Config) -> tuple[str, ...]:
        """Tensors that this model has no place for though others of the layout do, told about."""
        return ()

    def notes(self, given: Given) -> list[str]:
        """What could not be carried, for people."""
        return []
