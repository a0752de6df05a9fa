"""A public checkpoint as one of our models: a directory, or a file of llama.cpp."""

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

from qkv.checkpoints.config_fields import options_of
from qkv.checkpoints.format import Given, Head, Layout
from qkv.checkpoints.registry import find_layout
from qkv.checkpoints.save import longest_said
from qkv.checkpoints.sentence_transformers import as_sentence_encoder, is_sentence_encoder
from qkv.checkpoints.state_dict import Stored, fill, plain_names
from qkv.errors import BundleError, ConfigError
from qkv.files import read_json
from qkv.files.safe_io import suggest_path
from qkv.gguf import Gguf, open_gguf
from qkv.model import EncoderOnly
from qkv.model.build import Model, ModelConfig, skeleton
from qkv.text import SpecialTokens, Tokenizer, has_tokenizer, read_tokenizer
from qkv.weights import open_weights

# FOLDED layout/card: The import card: what was made of a public checkpoint, printed and kept
#   with the model.

SHOWN = 5  # names of a list that are printed


class Card(BaseModel):
    """What was mapped and how, what was inferred, and what could not be carried."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    source: str  # the directory's own name
    layout: str
    architecture: str
    tensors: dict[str, int]  # how they were taken over, and how many that way
    tied: list[str] = []
    ignored: list[str] = []
    stored: list[str] = []  # the kinds of number in the file
    options: dict[str, Any] = {}
    tokenizer: str = "none"
    not_carried: list[str] = []
    self_test: float | None = None

    def tested(self, difference: float) -> "Card":
        return self.model_copy(update={"self_test": difference})

    def lines(self) -> list[tuple[str, str]]:
        """What to print: a title and its text."""
        options = [(name.replace("_", " "), said(value)) for name, value in self.options.items()]
        return [*self.origin(), *options, *self.proof()]

    def origin(self) -> list[tuple[str, str]]:
        """Where it comes from, and how its tensors were taken over."""
        mapped = ", ".join(f"{count} {how}" for how, count in self.tensors.items())
        return [
            ("source", f"{self.source} ({self.layout}, {self.architecture})"),
            ("tensors", f"{mapped}; stored as {', '.join(self.stored)}"),
            ("stored twice", _some(self.tied)),
            ("ignored", _some(self.ignored)),
        ]

    def proof(self) -> list[tuple[str, str]]:
        """What is different here, and how well two ways to compute agree."""
        found = [
            ("tokenizer", self.tokenizer),
            ("not carried", "; ".join(self.not_carried) or "nothing was lost"),
        ]
        if self.self_test is not None:
            difference = f"{self.self_test:.1e}"
            found.append(("self-test", f"kernels and padding differ by {difference} at most"))
        return found


def said(value: Any) -> str:
    """A fact as people read it."""
    if isinstance(value, int):
        return f"{value:,}"
    return str(value)


def _some(names: list[str]) -> str:
    if not names:
        return "none"
    if len(names) > SHOWN:
        more = f" and {len(names) - SHOWN} more"
    else:
        more = ""
    return ", ".join(names[:SHOWN]) + more


CONFIG = "config.json"

MAGIC = b"GGUF"


@dataclass(frozen=True)
class Checkpoint:
    """A public model, ready to use."""

    model: Model
    tokenizer: Tokenizer | None
    card: Card


def is_checkpoint(place: Path) -> bool:
    """Whether this looks like a public checkpoint, not like one of our bundles."""
    if is_gguf(place):
        return True
    if not (place / CONFIG).is_file():
        return False
    return "model_type" in read_json(place / CONFIG)


def is_gguf(place: Path) -> bool:
    """Told by its first bytes."""
    if not place.is_file():
        return False
    with place.open("rb") as file:
        return file.read(len(MAGIC)) == MAGIC


def read_checkpoint(place: Path, pooler: bool = False) -> Checkpoint:
    """The model of a directory with config.json, safetensors and tokenizer files, or of a GGUF
    file.

    pooler: give a text's vector through the layout's own pooler, where it has one.
    """
    if not place.exists():
        hint = suggest_path(place) or "; give the directory of a public checkpoint"
        raise BundleError(f"{place} does not exist{hint}")
    if place.is_file() and not is_gguf(place):
        raise BundleError(f"{place} is a file; give the directory it lies in")
    if place.is_dir():
        return _from_directory(place, pooler)
    if pooler:
        raise BundleError(f"{place} is a decoder, which has no pooler")
    return _from_gguf(place, open_gguf(place))


def _from_directory(place: Path, pooler: bool) -> Checkpoint:
    if (place / CONFIG).is_file():
        fields = read_json(place / CONFIG)
    else:
        fields = {}
    if "model_type" not in fields:
        raise BundleError(
            f"{place} is no public checkpoint: it has no config.json that names a model_type; one "
            "of our bundles needs no import, every command takes it as it is"
        )
    if fields.get("auto_map"):
        raise BundleError(
            f"{place / CONFIG} asks for code of its own (auto_map); no code from a model "
            f"directory is run, so this model cannot be opened"
        )
    if fields.get("quantization_config"):
        raise BundleError(
            f"{place / CONFIG} says the weights are quantised (quantization_config), which cannot "
            f"be carried; get them in full, or as a GGUF file"
        )
    layout = find_layout(fields, str(place / CONFIG))
    sentence = is_sentence_encoder(place)
    if pooler and (sentence or not layout.pooled):
        if sentence:
            why = "its modules.json says how"
        else:
            why = f"{layout.kinds[0]} has no pooler"
        raise BundleError(f"{place}: a text's vector cannot go through a pooler; {why}")
    head: Head | None = "pooler" if pooler else "vector" if sentence else None
    with open_weights(place) as weights:
        if has_tokenizer(place):
            tokenizer = read_tokenizer(place, fields)
        else:
            tokenizer = None
        given = Given(fields, str(place / CONFIG), head)
        names = plain_names(layout, weights)
        config = described(layout, given, names)
        notes: list[str] = []
        if sentence:
            config, notes = as_sentence_encoder(config, place)
        elif isinstance(config, EncoderOnly):
            config = config.model_copy(update={"max_length": longest_said(place, config.length)})
        return assemble(place, layout, given, config, weights, names, tokenizer, notes)


def _from_gguf(place: Path, file: Gguf) -> Checkpoint:
    fields = file.config()
    layout = find_layout(fields, str(place))
    given = Given(fields, str(place))
    weights = file.weights()
    names = plain_names(layout, weights)
    config = described(layout, given, names)
    tokenizer = Tokenizer(file.tokenizer(), _marks(file))
    return assemble(place, layout, given, config, weights, names, tokenizer)


def _marks(file: Gguf) -> SpecialTokens:
    """The marks of the file; the end of a turn also ends a text."""
    said = file.marks()
    tokens = file.metadata.get("tokenizer.ggml.tokens", [])
    turns = (file.metadata.get(f"tokenizer.ggml.{name}_token_id") for name in ("eot", "eom"))
    stops = (tokens[id] for id in turns if isinstance(id, int) and 0 <= id < len(tokens))
    return SpecialTokens(
        said["pad"], said["unknown"], said["start"], said["end"], None,
        extra_eos=tuple(stops), chat_template=said["chat"],
    )  # fmt: skip


def assemble(
    place: Path,
    layout: Layout,
    given: Given,
    config: ModelConfig,
    weights: Stored,
    names: Mapping[str, str],
    tokenizer: Tokenizer | None,
    notes: Collection[str] = (),
) -> Checkpoint:
    """The model of this config, with these tensors in it, and the card that says how."""
    _check_tokenizer(place, tokenizer, config)
    model = skeleton(config)
    try:
        placed = fill(model, layout, weights, names)
    except BundleError as error:
        said = str(error)
        raise BundleError(said if said.startswith(str(place)) else f"{place} {said}") from None
    kinds = {str(weights.dtype(name)) for name in placed.source.values()}
    card = Card(
        source=place.resolve().name,
        layout=layout.kinds[0],
        architecture=_architecture(given.fields),
        tensors=dict(Counter(row.what for row in placed.rows)),
        tied=placed.tied,
        ignored=placed.ignored,
        stored=sorted(kind.removeprefix("torch.") for kind in kinds),
        options=options_of(config),
        tokenizer="none" if tokenizer is None else tokenizer.summary,
        not_carried=[*layout.notes(given), *notes],
    )
    return Checkpoint(model.eval(), tokenizer, card)


def described(layout: Layout, given: Given, names: Collection[str]) -> ModelConfig:
    """Our config; an error names the place, also where two fields do not fit together."""
    if given.head is None:
        _expect_class(layout, given)
    try:
        return layout.config(given, names)
    except ConfigError as error:
        said = str(error)
        raise ConfigError(said if given.place in said else f"{given.place}: {said}") from None


def _expect_class(layout: Layout, given: Given) -> None:
    """Only classes of this layout whose output is carried."""
    known = [family + ending for family in layout.families for ending in layout.architectures]
    for name in map(str, given.items("architectures")):
        if name not in known:
            raise ConfigError(
                f"{given.place}: the class {name} cannot be carried; of {layout.kinds[0]} these "
                f"can: {', '.join(known)}"
            )


def _architecture(fields: Mapping[str, Any]) -> str:
    said = fields.get("architectures")
    if isinstance(said, list) and said:
        return ", ".join(map(str, said))
    return "not said"


def _check_tokenizer(place: Path, tokenizer: Tokenizer | None, config: ModelConfig) -> None:
    if tokenizer is not None and tokenizer.vocab_size > config.embedding.vocabulary:
        raise BundleError(
            f"{place}: the tokenizer has {tokenizer.vocab_size:,} tokens but the model only "
            f"{config.embedding.vocabulary:,}; they do not belong together"
        )
