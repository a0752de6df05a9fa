"""A trace from a pass of a model over ids: which values, of which queries, with what changed."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

import torch
from torch import Tensor

from qkv.engine.answering import at_rest
from qkv.errors import UsageError, unknown
from qkv.explain.trace.again import as_rows
from qkv.explain.trace.capture import Values, capturing
from qkv.explain.trace.edits import Edit, is_touched
from qkv.explain.trace.ends import positions
from qkv.explain.trace.graph import Graph, graph
from qkv.explain.trace.node import Node
from qkv.explain.trace.trace import Trace
from qkv.model import Decoder, Encoder, Model, Stack, Translator

Rows = Sequence[int] | Mapping[str, Sequence[int]] | None
EVERYTHING, LAYERS = ("*",), "layers"
ROOM = 2 * 2**30  # bytes; more than this is hardly meant


@dataclass(frozen=True)
class Reading:
    """What a model reads: ids of a text, or of a source and a target, and their names."""

    ids: Mapping[str, list[int]]
    tokens: Mapping[str, tuple[str, ...]]
    words: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    outputs: tuple[str, ...] = ()  # what each number of the model's answer is called

    @classmethod
    def of_ids(cls, **ids: Sequence[int]) -> Reading:
        """Without a tokenizer: positions go by their numbers."""
        given = {name: [int(id) for id in row] for name, row in ids.items()}
        return cls(given, {name: tuple(map(str, row)) for name, row in given.items()})


def open_up(
    model: Model,
    reading: Reading,
    keep: Sequence[str] = EVERYTHING,
    rows: Rows = None,
    edits: Sequence[Edit] = (),
    about: Mapping[str, str] | None = None,
    served: Tensor | None = None,
) -> Trace:
    """The values whose names match one of `keep`, from one pass over what is read.

    rows: of scores, weights and the steps between only these queries, −1 being the last; the
    memory then grows with the length of the text, not with its square. A list is of the text or
    the target; {"source": [0]} names the sequence. served: what the model
    that answers gave for the same, to be held against this.
    """
    found = graph(model)
    wanted = chosen(found, keep)
    few = _few(rows, reading)
    refuse_too_much(wanted, model, reading, few)
    with ExitStack() as stack:
        stack.enter_context(at_rest(model))
        stack.enter_context(torch.no_grad())
        for edit in edits:
            stack.enter_context(edit.applied(model, found))
        found = graph(model)  # an edit may be one of the model's own numbers
        values = stack.enter_context(capturing(model, [*wanted, found["output"]], few))
        given = _pass(model, reading, edits)
    values |= given
    if served is not None:
        values["served"] = served
    if "probabilities" in found.nodes:
        scores = values[found.name("output")].cpu()
        # Of 32,000 scores torch's float32 softmax is up to 2e-5 off, on CPUs without AVX-512.
        values["probabilities"] = scores.softmax(dim=-1, dtype=torch.float64).float()
    names = [node.name for node in wanted if node.name in values]
    tokens = {name: _named(name, row, edits) for name, row in reading.tokens.items()}
    return Trace(
        graph=found,
        kept={name: values[name].cpu() for name in names},
        parameters=dict(model.named_parameters(remove_duplicate=False)),
        tokens=tokens,
        words=reading.words,
        rows=few,
        about=about or {},
        outputs=reading.outputs,
        edits=tuple(str(edit) for edit in edits),
        touched=frozenset(name for name in found.nodes if is_touched(name, edits, found)),
    )


def chosen(found: Graph, keep: Sequence[str]) -> list[Node]:
    """The nodes whose name or second name matches a pattern, in order.

    "layers" is what enters and leaves each layer.
    """
    names: set[str] = set()
    for pattern in [keep] if isinstance(keep, str) else keep:
        if pattern == LAYERS:
            names.update(found.layers)
            continue
        matches = [name for name in found.nodes if fnmatchcase(name, pattern)]
        matches += [to for name, to in found.aliases.items() if fnmatchcase(name, pattern)]
        if not matches:
            raise UsageError(unknown("value", pattern, [*found.nodes, *found.aliases]))
        names.update(matches)
    return [node for node in found if node.name in names]


def refuse_too_much(
    wanted: Sequence[Node], model: Model, reading: Reading, rows: Mapping[str, tuple[int, ...]]
) -> None:
    """A clear word before the machine runs out of memory."""
    total = sum(_bytes(node, model, reading, rows) for node in wanted)
    if total > ROOM:
        raise UsageError(
            f"these values of so long a text take {total / 2**30:.1f} GB; keep some of them, as in "
            'keep=["*.weights"], or some queries, as in rows=[-1]'
        )


def _bytes(node: Node, model: Model, reading: Reading, rows: Mapping[str, tuple[int, ...]]) -> int:
    """What a value takes, from the lengths of its axes."""
    config = model.config
    stacks = {side: part for side, part in config if isinstance(part, Stack)}
    stack = stacks.get(node.name.partition(".")[0]) or list(stacks.values())[-1]
    heads, wide = stack.attention, stack.width
    sizes = {
        "H": heads.heads,
        "K": heads.shared_heads,
        "E": heads.key_width(wide),
        "D": wide,
        "H·E": heads.heads * heads.mixed_width(wide),
        "F": stack.feed_forward.width,
        "V": config.embedding.vocabulary,
    }
    for axis, sequence in node.along.items():
        few = rows.get(sequence) if node.by_row and axis == "T" else None
        sizes[axis] = len(reading.ids[sequence] if few is None else few)
    return 4 * math.prod(sizes.get(axis, 1) for axis in node.axes)


def _named(sequence: str, tokens: tuple[str, ...], edits: Sequence[Edit]) -> tuple[str, ...]:
    """What stands at each position once the edits are made."""
    for edit in edits:
        tokens = tuple(edit.tokens(sequence, list(tokens)))
    return tokens


def _few(rows: Rows, reading: Reading) -> dict[str, tuple[int, ...]]:
    """The asked queries of each sequence that is named."""
    if rows is None:
        return {}
    last = list(reading.ids)[-1]  # the text, or the target
    named = rows if isinstance(rows, Mapping) else {last: rows}
    for name in named.keys() - reading.ids.keys():
        raise UsageError(unknown("sequence", name, reading.ids))
    if not all(len(each) for each in named.values()):
        raise UsageError("rows is empty; name a query, as in rows=[-1], or leave it out")
    return {name: as_rows(each, len(reading.ids[name])) for name, each in named.items()}


def _pass(model: Model, reading: Reading, edits: Sequence[Edit]) -> Values:
    """One forward pass; gives what went in, by name."""
    device = model.embedding.weight.device
    given: Values = {}
    ids: dict[str, Tensor] = {}
    for sequence, row in reading.ids.items():
        if not row:
            raise UsageError(f"the {sequence} is empty: there is nothing to look at")
        for edit in edits:
            row = edit.ids(sequence, row)
        ids[sequence] = torch.tensor([row], device=device)
        name = "source_ids" if sequence == "source" else "ids"
        given[name] = ids[sequence]
        given[positions(sequence)] = torch.arange(len(row))
    if isinstance(model, Translator):
        model(ids["source"], ids["target"])
    else:
        assert isinstance(model, Encoder | Decoder)
        model(ids["text"])
    return given
