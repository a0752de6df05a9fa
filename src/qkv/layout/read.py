"""A public checkpoint as one of our models: every tensor placed, or an error that names it."""

import math
import re
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from qkv.errors import BundleError, ConfigError
from qkv.gguf import open_gguf
from qkv.layout.card import Card
from qkv.layout.given import Given
from qkv.layout.known import find_layout
from qkv.layout.layout import Layout
from qkv.layout.names import Same, Sizes, rows
from qkv.layout.options import options_of
from qkv.layout.sentence import as_sentence_encoder, is_sentence_encoder
from qkv.layout.tokens import has_tokenizer
from qkv.model.family import Config, Model, skeleton
from qkv.text import Marks, Tokenizer
from qkv.text.files import read_json
from qkv.text.public import read_tokenizer
from qkv.weights import open_weights

CONFIG = "config.json"
GREEK = re.compile(r"(?<=LayerNorm\.)(gamma|beta)$")


class Stored(Protocol):
    """Tensors on disk by name."""

    def __iter__(self) -> Any: ...
    def __len__(self) -> int: ...
    def __contains__(self, name: object) -> bool: ...
    def shape(self, name: str) -> tuple[int, ...]: ...
    def dtype(self, name: str) -> torch.dtype: ...
    def mapped(self, name: str) -> Tensor: ...
    def read(
        self, name: str, dtype: torch.dtype | None = None, room: Tensor | None = None
    ) -> Tensor: ...


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
    return place.suffix == ".gguf" and place.is_file()


def read_checkpoint(place: Path, pooler: bool = False) -> Checkpoint:
    """The model of a public directory: config.json, safetensors and tokenizer files; or of a
    .gguf file.

    pooler: give a text's vector through the layout's own pooler, where it has one.
    """
    if is_gguf(place):
        return _read_gguf(place)
    fields = dict(read_json(place / CONFIG))
    said = fields.get("architectures")
    if fields.get("auto_map"):
        raise BundleError(
            f"{place / CONFIG} asks for code of its own (auto_map); no code from a model "
            f"directory is run, so this model cannot be opened"
        )
    if is_sentence_encoder(place):
        fields["architectures"] = ["SentenceModel"]
    if pooler:
        fields["architectures"] = ["PoolerModel"]
    layout = find_layout(fields, str(place / CONFIG))
    with open_weights(place) as weights:
        tokenizer = read_tokenizer(place, fields) if has_tokenizer(place) else None
        found = assemble(place, layout, fields, weights, tokenizer)
    return replace(found, card=replace(found.card, architecture=_architecture(said)))


def _read_gguf(place: Path) -> Checkpoint:
    file = open_gguf(place)
    fields, said = file.config(), file.marks()
    marks = Marks(said["pad"], said["unknown"], said["start"], said["end"], None, chat=said["chat"])
    tokenizer = Tokenizer(file.tokenizer(), marks)
    return assemble(place, find_layout(fields, str(place)), fields, file.weights(), tokenizer)


def assemble(
    place: Path,
    layout: Layout,
    fields: Mapping[str, Any],
    weights: Stored,
    tokenizer: Tokenizer | None,
) -> Checkpoint:
    """The model that these fields describe, with these tensors in it."""
    given = Given(fields, str(place / CONFIG))
    names = _by_plain_name(layout, weights)
    config = _described(place, layout, given, names)
    _check_tokenizer(place, tokenizer, config)
    model = skeleton(config)
    sizes = {name: t.shape for name, t in model.state_dict().items()}
    placed = rows(layout.table(config), sizes)
    source = _sources(place, layout, config, placed, names)
    _check_shapes(place, placed, source, sizes, weights)
    ignored = _account_for(place, layout, config, placed, names)
    _check_twins(place, layout, config, names, weights)
    model.load_state_dict(_filled(placed, source, sizes, weights), strict=True, assign=True)
    tied = sorted(names[twin] for twin in layout.twins(config) if twin in names)
    card = Card(
        source=place.resolve().name,
        layout=layout.kinds[0],
        architecture=_architecture(fields.get("architectures")),
        tensors=dict(Counter(row.what for row in placed)),
        tied=[name for name in tied if name not in source.values()],
        ignored=ignored,
        stored=sorted({str(weights.dtype(n)).removeprefix("torch.") for n in source.values()}),
        options=options_of(config),
        tokenizer="none" if tokenizer is None else f"{tokenizer.kind}, {tokenizer.size:,} tokens",
        not_carried=layout.notes(given),
    )
    return Checkpoint(model.eval(), tokenizer, card)


def _described(place: Path, layout: Layout, given: Given, names: Collection[str]) -> Config:
    """Our config; an error names the place, also where two fields do not fit together."""
    try:
        config = layout.config(given, names)
        return as_sentence_encoder(config, place) if is_sentence_encoder(place) else config
    except ConfigError as error:
        said = str(error)
        raise ConfigError(said if str(place) in said else f"{given.place}: {said}") from None


def _architecture(said: Any) -> str:
    return ", ".join(map(str, said)) if isinstance(said, list) and said else "not said"


def _by_plain_name(layout: Layout, weights: Stored) -> dict[str, str]:
    """Each tensor's name without the layout's prefix, to the name it has in the file.

    Checkpoints that once came from TensorFlow call the weight of a norm gamma and its bias beta.
    """
    found: dict[str, str] = {}
    for name in weights:
        plain = name.removeprefix(layout.prefix)
        plain = GREEK.sub(lambda match: {"gamma": "weight", "beta": "bias"}[match[0]], plain)
        if plain in found:
            raise BundleError(f"{found[plain]} and {name} are one tensor under two names")
        found[plain] = name
    return found


def _sources(
    place: Path, layout: Layout, config: Config, placed: list[Same], names: Mapping[str, str]
) -> dict[str, str]:
    """Where each public tensor that is needed is found: under its name, or that of a twin."""
    twins: dict[str, list[str]] = {}
    for twin, first in layout.twins(config).items():
        twins.setdefault(first, []).append(twin)
    found = {}
    for row in placed:
        under = [n for n in (row.theirs, *twins.get(row.theirs, ())) if n in names]
        if not under:
            raise BundleError(
                f"{place} lacks the tensor {row.theirs}, needed for {', '.join(row.ours)}; "
                f"the checkpoint is incomplete or of another kind than its config says"
            )
        found[row.theirs] = names[under[0]]
    return found


def _check_shapes(
    place: Path,
    placed: list[Same],
    source: Mapping[str, str],
    sizes: Sizes,
    weights: Stored,
) -> None:
    for row in placed:
        where, wanted = source[row.theirs], row.shape(sizes)
        if weights.shape(where) != wanted:
            raise BundleError(
                f"{place}: {where} has shape {weights.shape(where)} but its config.json asks for "
                f"{wanted}"
            )
        if not weights.dtype(where).is_floating_point:
            raise BundleError(
                f"{place}: {where} holds {weights.dtype(where)}, not numbers with decimals"
            )


def _account_for(
    place: Path,
    layout: Layout,
    config: Config,
    placed: list[Same],
    names: Mapping[str, str],
) -> list[str]:
    """Tensors nothing is made of, all of them known ones; any other is refused."""
    used = {row.theirs for row in placed} | layout.twins(config).keys()
    known = [re.compile(pattern) for pattern in (*layout.leftovers, *layout.unused(config))]
    ignored = []
    for plain, name in names.items():
        if plain in used:
            continue
        if not any(pattern.fullmatch(plain) for pattern in known):
            raise BundleError(
                f"{place} holds the tensor {name}, for which this {layout.kinds[0]} model has no "
                f"place; its config.json does not describe these weights"
            )
        ignored.append(name)
    return sorted(ignored)


def _check_twins(
    place: Path, layout: Layout, config: Config, names: Mapping[str, str], weights: Stored
) -> None:
    """What is said to be one tensor and is stored twice must be the same twice."""
    together: dict[str, list[str]] = {}
    for twin, first in layout.twins(config).items():
        together.setdefault(first, [first]).append(twin)
    for members in together.values():
        stored = [names[name] for name in members if name in names]
        for other in stored[1:]:
            one, two = (weights.read(name) for name in (stored[0], other))
            if one.shape != two.shape or not torch.equal(one, two):
                raise BundleError(
                    f"{place}: {other} should be {stored[0]} under a second name, as its "
                    f"config.json ties them, but they differ"
                )


def _filled(
    placed: list[Same], source: Mapping[str, str], sizes: Sizes, weights: Stored
) -> dict[str, Tensor]:
    """All our tensors: mapped where they are stored as we need them, else in memory of their own.

    What must be changed is read into one and the same room: torch's memory for a large tensor is
    not given back or used again as soon as the tensor is gone.
    """
    changed = [name for row in placed if type(row) is not Same for name in row.ours]
    filled = {name: torch.empty(sizes[name]) for name in changed}
    counts = [math.prod(row.shape(sizes)) for row in placed if type(row) is not Same]
    room = torch.empty(max(counts, default=0))
    for row in placed:
        where = source[row.theirs]
        if type(row) is not Same:
            whole = weights.read(where, torch.float32, room)
            for name, part in row.take(lambda _, whole=whole: whole, sizes).items():  # type: ignore[misc]
                filled[name].copy_(part)
        elif weights.dtype(where) == torch.float32:
            filled[row.ours[0]] = weights.mapped(where)
        else:
            filled[row.ours[0]] = weights.read(where, torch.float32)
    return filled


def _check_tokenizer(place: Path, tokenizer: Tokenizer | None, config: Config) -> None:
    if tokenizer is not None and tokenizer.size > config.embedding.vocabulary:
        raise BundleError(
            f"{place}: the tokenizer has {tokenizer.size:,} tokens but the model only "
            f"{config.embedding.vocabulary:,}; they do not belong together"
        )
