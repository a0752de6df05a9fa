"""What a public layout answers: its shape as one of our configs, and its names for our tensors.

To add one, write a file like `gpt2.py` and name it in `known.LAYOUTS`:

    class Mine(Layout):
        kinds = ("mine",)                      # model_type in config.json
        title = "Mine (Author, year)"
        prefix = "model."                      # before tensors of the body
        families = ("Mine",)                   # with the endings: MineForCausalLM,
        architectures = ("ForCausalLM",)       # checked before `config` is asked

        def config(self, given, tensors): ...  # Given -> DecoderOnly(...), asked field by field
        def fields(self, config): ...          # the way back; proved by asking `config` again
        def table(self, config):               # ours: theirs, without the prefix; see names.py
            return {"decoder.{i}.attention.query": "layers.{i}.q_proj", ...}

and a `tests/layout/cases_mine.py` with models of the peer, which the tests there read, run with
padding and with a cache, write, and let the peer read again.
"""

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from typing import Any, ClassVar

from qkv.errors import ConfigError
from qkv.layout.given import Given
from qkv.layout.names import Table
from qkv.model import Classify
from qkv.model.family import Config


class OtherFamilyError(ConfigError):
    """A layout for encoders is asked to say a decoder, or the like."""


class Layout(ABC):
    """One way in which public checkpoints write a model down.

    All names of tensors are meant without the prefix, but for those of `copies`.
    """

    kinds: ClassVar[tuple[str, ...]]  # the `model_type`s it reads; it writes the first
    title: ClassVar[str]  # for people
    families: ClassVar[tuple[str, ...]]  # beginnings of the classes it reads: "Bert"
    architectures: ClassVar[tuple[str, ...]]  # and their endings: "ForMaskedLM"
    prefix: ClassVar[str] = ""  # before every tensor of the body, unless a body alone was saved
    head: ClassVar[tuple[str, ...]] = ()  # beginnings of tensor names that have no prefix
    leftovers: ClassVar[tuple[str, ...]] = ()  # tensors no model needs, as regular expressions
    pooled: ClassVar[bool] = False  # whether its checkpoints may have a pooler

    @abstractmethod
    def config(self, given: Given, tensors: Collection[str]) -> Config:
        """Our config for theirs; `tensors` are the names in the file."""

    @abstractmethod
    def fields(self, config: Config) -> dict[str, Any]:
        """Their config.json for ours, as well as it can be said: `config` of it shows how well."""

    @abstractmethod
    def table(self, config: Config) -> Table:
        """Their name for each of our tensors."""

    def twins(self, config: Config) -> Mapping[str, str]:
        """Tensors that are another one under a second name: that name to the first.

        Either may be missing in a file; where both are there, they must be equal.
        """
        return {}

    def unused(self, config: Config) -> tuple[str, ...]:
        """Tensors that this model has no place for though others of the layout do, as regular
        expressions: they may be in a file and are told about.
        """
        return ()

    def copies(self, config: Config) -> Mapping[str, str]:
        """What is written a second time because other programs look for it: that name to the one
        it is a copy of, both as they stand in the file.
        """
        return {}

    def labels(self, config: Config, names: tuple[str, ...]) -> Classify | None:
        """The output for labels that its own classes have on such a body, if they have one."""
        return None

    def notes(self, given: Given) -> list[str]:
        """What could not be carried, for people."""
        return []
