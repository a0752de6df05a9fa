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

and a `tests/checkpoints/cases_mine.py` with models of the peer, read, run with
padding and with a cache, write, and let the peer read again.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, TypeVar

from qkv.checkpoints.tensor_names import Table
from qkv.errors import ConfigError, unknown
from qkv.files import short_repr
from qkv.model import Classify, DecoderOnly, EncoderDecoder, EncoderOnly, MultiHead, Rope, Stack
from qkv.model.build import ModelConfig

# FOLDED layout/given: The config.json of a public checkpoint, asked field by field: what is
#   absurd is refused.
# FOLDED layout/expect: What a layout takes for granted of a config it is asked to say, or an
#   error.

T = TypeVar("T")

Head = Literal["vector", "pooler", "masked", "labels"]

LARGEST = 1 << 24  # of any size: vocabularies are the largest there are

MOST_LAYERS = 2048


@dataclass(frozen=True)
class Given:
    """Fields by name; each question says what is allowed and what an absent field means."""

    fields: Mapping[str, Any]
    place: str = "config.json"
    head: Head | None = None  # the output that is asked for, whatever the fields say

    def has(self, name: str) -> bool:
        return self.fields.get(name) is not None

    def size(self, name: str, absent: int | None = None, largest: int = LARGEST) -> int:
        """A whole number of 1 or more."""
        value = self._value(name, absent)
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= largest:
            raise self.wrong(name, value, f"a whole number from 1 to {largest:,}")
        return int(value)

    def layers(self, name: str, absent: int | None = None) -> int:
        return self.size(name, absent, MOST_LAYERS)

    def number(self, name: str, absent: float | None = None) -> float:
        value = self._value(name, absent)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.wrong(name, value, "a number")
        try:
            number = float(value)
        except OverflowError:  # a whole number may be longer than any with decimals
            number = math.inf
        if not math.isfinite(number):
            raise self.wrong(name, value, "a finite number")
        return number

    def positive(self, name: str, absent: float | None = None) -> float:
        value = self.number(name, absent)
        if value <= 0:
            raise self.wrong(name, value, "a number above 0")
        return value

    def share(self, name: str, absent: float = 0.0) -> float:
        """A part of 1, such as how much is dropped."""
        value = self.number(name, absent)
        if not 0.0 <= value < 1.0:
            raise self.wrong(name, value, "a number from 0 to below 1")
        return value

    def flag(self, name: str, absent: bool | None = None) -> bool:
        value = self._value(name, absent)
        if not isinstance(value, bool):
            raise self.wrong(name, value, "true or false")
        return value

    def word(self, name: str, absent: str | None = None) -> str:
        value = self._value(name, absent)
        if not isinstance(value, str):
            raise self.wrong(name, value, "a text")
        return value

    def one_of(self, name: str, known: Mapping[str, T], absent: str | None = None) -> T:
        """What `known` says of that name."""
        value = self.word(name, absent)
        if value not in known:
            raise ConfigError(f"{self.place}: {unknown(name, value, known)}")
        return known[value]

    def inner(self, name: str) -> "Given":
        """An object inside, empty if it is absent."""
        value = self.fields.get(name)
        if value is None:
            return Given({}, f"{self.place}: {name}")
        if not isinstance(value, dict):
            raise self.wrong(name, value, "an object")
        return Given(value, f"{self.place}: {name}")

    def items(self, name: str) -> Sequence[Any]:
        """A list, empty if it is absent."""
        value = self.fields.get(name)
        if value is None:
            return ()
        if not isinstance(value, list):
            raise self.wrong(name, value, "a list")
        return value

    def must_be(self, name: str, allowed: Sequence[Any], why: str) -> None:
        """Raise unless the field is absent or one of these."""
        value = self.fields.get(name)
        if value is not None and value not in allowed:
            raise ConfigError(f"{self.place}: {name} is {short_repr(value)}, which {why}")

    def wrong(self, name: str, value: Any, needed: str) -> ConfigError:
        if value is None:
            return ConfigError(f"{self.place}: {name} is missing; {needed} is needed")
        return ConfigError(f"{self.place}: {name} is {short_repr(value)}, but {needed} is needed")

    def _value(self, name: str, absent: Any) -> Any:
        value = self.fields.get(name)
        if value is None:
            return absent
        return value


def told_dropout(given: Given, name: str, absent: float) -> list[str]:
    """A note on dropout of attention weights, which that field says: ours has none."""
    rate = given.share(name, absent)
    return [f"dropout of attention weights ({rate:g}), which only training would use"] * bool(rate)


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
    def config(self, given: Given, tensors: Collection[str]) -> ModelConfig:
        """Our config for theirs; `tensors` are the names in the file."""

    @abstractmethod
    def fields(self, config: ModelConfig) -> dict[str, Any]:
        """Their config.json for ours, as well as it can be said: `config` of it shows how well."""

    @abstractmethod
    def table(self, config: ModelConfig) -> Table:
        """Their name for each of our tensors."""

    def twins(self, config: ModelConfig) -> Mapping[str, str]:
        """Tensors that are another one under a second name: that name to the first.

        Either may be missing in a file; where both are there, they must be equal.
        """
        return {}

    def unused(self, config: ModelConfig) -> tuple[str, ...]:
        """Tensors that this model has no place for though others of the layout do, as regular
        expressions: they may be in a file and are told about.
        """
        return ()

    def copies(self, config: ModelConfig) -> Mapping[str, str]:
        """What is written a second time because other programs look for it: that name to the one
        it is a copy of, both as they stand in the file.
        """
        return {}

    def labels(self, config: ModelConfig, names: tuple[str, ...]) -> Classify | None:
        """The output for labels that its own classes have on such a body, if they have one."""
        return None

    def notes(self, given: Given) -> list[str]:
        """What could not be carried, for people."""
        return []


def expect_encoder(config: object) -> EncoderOnly:
    if not isinstance(config, EncoderOnly):
        raise OtherFamilyError("this layout is for encoders")
    return config


def expect_decoder(config: object) -> DecoderOnly:
    if not isinstance(config, DecoderOnly):
        raise OtherFamilyError("this layout is for decoders")
    return config


def expect_translator(config: object) -> EncoderDecoder:
    if not isinstance(config, EncoderDecoder):
        raise OtherFamilyError("this layout is for encoder–decoders")
    return config


def expect_heads(stack: Stack) -> MultiHead:
    if not isinstance(stack.attention, MultiHead):
        raise ConfigError(f"this layout has heads as in the paper, not {stack.attention.kind}")
    return stack.attention


def expect_rotary(stack: Stack) -> Rope:
    if not isinstance(stack.position, Rope):
        raise ConfigError(f"this layout has rotary positions, not {stack.position.kind}")
    return stack.position
