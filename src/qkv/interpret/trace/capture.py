"""A trace from a pass of a model over ids: which values, of which queries, with what changed."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, fields
from fnmatch import fnmatchcase
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from qkv.attention import Mask, Steps, Tile
from qkv.attention.reference import steps_in
from qkv.engine.batching import eval_mode
from qkv.errors import UsageError, unknown
from qkv.interpret.trace.attention_graph import positions
from qkv.interpret.trace.edits import Edit, is_overridden
from qkv.interpret.trace.graph import Graph, HookPoint, Node, build_graph
from qkv.interpret.trace.recompute import as_rows
from qkv.interpret.trace.trace import Trace
from qkv.model import Decoder, Encoder, Model, Stack, Translator, View
from qkv.model.attention import AttentionCore

# FOLDED explain/trace/capture: Values picked up while a model computes, by hooks that are there
#   for one pass only.
#
#   The fused kernel answers as always. Where the steps between are asked for, they are
#   computed beside
#   it from the same queries, keys, values and mask: all of them, or those of some queries
#   alone.

Values = dict[str, Tensor]

STEPS = tuple(part.name for part in fields(Steps))


@contextmanager
def capturing(
    model: nn.Module, nodes: Iterable[Node], rows: Mapping[str, tuple[int, ...]]
) -> Iterator[Values]:
    """Inside, what passes these nodes is put into the values given; rows as in `Trace`."""
    wanted: dict[str, dict[int, list[Node]]] = defaultdict(lambda: defaultdict(list))
    for node in nodes:
        if node.hook_point is not None:
            wanted[node.hook_point.module][node.hook_point.call].append(node)
    values: Values = {}
    handles: list[RemovableHandle] = []
    try:
        for path, calls in wanted.items():
            module = model.get_submodule(path)
            hook = _Hook(calls, values, rows)
            handles.append(module.register_forward_hook(hook))
            if (
                isinstance(module, AttentionCore) and module.hook_point.has_hooks
            ):  # an edit changes the steps
                handles.append(module.hook_point.register_forward_hook(hook.see))
        yield values
    finally:
        for handle in handles:
            handle.remove()


class _Hook:
    """Picks the asked values of one module, call after call."""

    def __init__(
        self,
        calls: dict[int, list[Node]],
        values: Values,
        rows: Mapping[str, tuple[int, ...]],
    ) -> None:
        self.calls, self.values, self.rows, self.call = calls, values, rows, 0
        self.edited: Steps | None = None

    def see(self, tap: nn.Module, arguments: tuple[Any, ...], steps: Steps) -> None:
        """The steps as an edit left them."""
        self.edited = steps

    def __call__(self, module: nn.Module, arguments: tuple[Any, ...], result: Tensor) -> None:
        nodes, self.call = self.calls.get(self.call, []), self.call + 1
        stepwise = [node for node in nodes if node.by_row]
        if stepwise:
            assert isinstance(module, AttentionCore)
            q, k, v, mask = arguments
            rows = self.rows.get(stepwise[0].sequences["T"])
            steps, seen, bias = _explicit(module, q, k, v, mask, rows, self.edited)
        for node in nodes:
            assert node.hook_point is not None
            value = (
                _explicit_part(node.hook_point, steps, seen, bias)
                if node.by_row
                else _picked(node.hook_point, arguments, result)
            )
            self.values[node.name] = value.detach()


def _picked(hook_point: HookPoint, arguments: tuple[Any, ...], result: Tensor) -> Tensor:
    if hook_point.place == "result":
        return result
    value = (
        arguments[int(hook_point.which)]
        if hook_point.place == "argument"
        else _turning(arguments, hook_point)
    )
    assert isinstance(value, Tensor)
    return value


def _turning(arguments: tuple[Any, ...], hook_point: HookPoint) -> Any:
    view = arguments[1]
    assert isinstance(view, View)
    return getattr(view.rope, hook_point.which)


def _explicit_part(hook_point: HookPoint, steps: Steps, seen: Tensor, bias: Tensor) -> Tensor:
    if hook_point.place == "mask":
        return seen if hook_point.which == "seen" else bias
    step: Tensor = getattr(steps, hook_point.which)
    return step


def _explicit(
    module: AttentionCore,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Mask,
    rows: Sequence[int] | None,
    edited: Steps | None,
) -> tuple[Steps, Tensor, Tensor]:
    """Every step of the asked queries, with what they see and what is added to their scores."""
    T, S = q.shape[2], k.shape[2]
    spans = [range(T)] if rows is None else [range(row, row + 1) for row in rows]
    tiles = [Tile(span, range(S), S - T, q.device) for span in spans]
    found = [
        _cut(edited, tile.queries)
        if edited is not None
        else steps_in(_of(q, tile.queries), k, v, mask, tile, module.scale, module.cap)
        for tile in tiles
    ]
    steps = Steps(*(_together([getattr(one, name) for one in found], dim=2) for name in STEPS))
    seen = _together([_grid(mask.seen_in, tile, True) for tile in tiles], dim=-2)
    bias = _together([_grid(mask.bias_in, tile, 0.0) for tile in tiles], dim=-2)
    return steps, seen, bias


def _cut(steps: Steps, queries: range) -> Steps:
    return Steps(*(_of(getattr(steps, name), queries) for name in STEPS))


def _of(tensor: Tensor, queries: range) -> Tensor:
    """Those queries of (B, H, T, …)."""
    return tensor[:, :, queries.start : queries.stop]


def _grid(ask: Callable[[Tile], Tensor | None], tile: Tile, usual: bool | float) -> Tensor:
    """What a mask says of a tile, at its full size."""
    size = (len(tile.queries), len(tile.keys))
    found, filled = ask(tile), torch.full(size, usual, device=tile.device)
    return filled if found is None else found.expand(*found.shape[:-2], *size)


def _together(parts: list[Tensor], dim: int) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(parts, dim=dim)


Rows = Sequence[int] | Mapping[str, Sequence[int]] | None

ALL_VALUES, LAYERS = ("*",), "layers"

ROOM = 2 * 2**30  # bytes; more than this is hardly meant


@dataclass(frozen=True)
class TokenizedInput:
    """What a model reads: ids of a text, or of a source and a target, and their names."""

    ids: Mapping[str, list[int]]
    tokens: Mapping[str, tuple[str, ...]]
    words: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    output_names: tuple[str, ...] = ()  # what each number of the model's answer is called

    @classmethod
    def from_ids(cls, **ids: Sequence[int]) -> TokenizedInput:
        """Without a tokenizer: positions go by their numbers."""
        given = {name: [int(id) for id in row] for name, row in ids.items()}
        return cls(given, {name: tuple(map(str, row)) for name, row in given.items()})


def capture_trace(
    model: Model,
    reading: TokenizedInput,
    keep: Sequence[str] = ALL_VALUES,
    rows: Rows = None,
    edits: Sequence[Edit] = (),
    metadata: Mapping[str, str] | None = None,
    served: Tensor | None = None,
) -> Trace:
    """The values whose names match one of `keep`, from one pass over what is read.

    rows: of scores, weights and the steps between only these queries, −1 being the last; the
    memory then grows with the length of the text, not with its square. A list is of the text or
    the target; {"source": [0]} names the sequence. served: what the model
    that answers gave for the same, to be held against this.
    """
    found = build_graph(model)
    wanted = chosen(found, keep)
    few = _few(rows, reading)
    check_memory(wanted, model, reading, few)
    with ExitStack() as stack:
        stack.enter_context(eval_mode(model))
        stack.enter_context(torch.no_grad())
        for edit in edits:
            stack.enter_context(edit.applied(model, found))
        found = build_graph(model)  # an edit may be one of the model's own numbers
        values = stack.enter_context(capturing(model, [*wanted, found["output"]], few))
        given = _pass(model, reading, edits)
    values |= given
    if served is not None:
        values["served"] = served
    if "probabilities" in found.nodes:
        scores = values[found.resolve("output")].cpu()
        # Of 32,000 scores torch's float32 softmax is up to 2e-5 off, on CPUs without AVX-512.
        values["probabilities"] = scores.softmax(dim=-1, dtype=torch.float64).float()
    names = [node.name for node in wanted if node.name in values]
    tokens = {name: _named(name, row, edits) for name, row in reading.tokens.items()}
    return Trace(
        graph=found,
        tensors={name: values[name].cpu() for name in names},
        parameters=dict(model.named_parameters(remove_duplicate=False)),
        tokens=tokens,
        words=reading.words,
        rows=few,
        metadata=metadata or {},
        output_names=reading.output_names,
        edits=tuple(str(edit) for edit in edits),
        overrides=frozenset(name for name in found.nodes if is_overridden(name, edits, found)),
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


def check_memory(
    wanted: Sequence[Node],
    model: Model,
    reading: TokenizedInput,
    rows: Mapping[str, tuple[int, ...]],
) -> None:
    """A clear word before the machine runs out of memory."""
    total = sum(_bytes(node, model, reading, rows) for node in wanted)
    if total > ROOM:
        raise UsageError(
            f"these values of so long a text take {total / 2**30:.1f} GB; keep some of them, as in "
            'keep=["*.weights"], or some queries, as in rows=[-1]'
        )


def _bytes(
    node: Node, model: Model, reading: TokenizedInput, rows: Mapping[str, tuple[int, ...]]
) -> int:
    """What a value takes, from the lengths of its axes."""
    config = model.config
    stacks = {side: part for side, part in config if isinstance(part, Stack)}
    stack = stacks.get(node.name.partition(".")[0]) or list(stacks.values())[-1]
    heads, wide = stack.attention, stack.width
    sizes = {
        "H": heads.heads,
        "K": heads.num_kv_heads,
        "E": heads.key_width(wide),
        "D": wide,
        "H·E": heads.heads * heads.value_head_width(wide),
        "F": stack.feed_forward.width,
        "V": config.embedding.vocabulary,
    }
    for axis, sequence in node.sequences.items():
        few = rows.get(sequence) if node.by_row and axis == "T" else None
        sizes[axis] = len(reading.ids[sequence] if few is None else few)
    return 4 * math.prod(sizes.get(axis, 1) for axis in node.axes)


def _named(sequence: str, tokens: tuple[str, ...], edits: Sequence[Edit]) -> tuple[str, ...]:
    """What stands at each position once the edits are made."""
    for edit in edits:
        tokens = tuple(edit.tokens(sequence, list(tokens)))
    return tokens


def _few(rows: Rows, reading: TokenizedInput) -> dict[str, tuple[int, ...]]:
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


def _pass(model: Model, reading: TokenizedInput, edits: Sequence[Edit]) -> Values:
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
