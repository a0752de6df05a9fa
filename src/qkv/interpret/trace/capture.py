"""A trace from one forward pass: which values, of which queries, with which edits.

Values are captured by forward hooks that exist for that pass only. The fused attention kernel runs
as always; where the steps of attention are asked for, they are computed next to it from the same
queries, keys, values and mask, for all queries or for some of them.
"""

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

from qkv.attention import AttentionSteps, Mask, Tile, tile_steps
from qkv.engine import eval_mode
from qkv.errors import UsageError, unknown
from qkv.interpret.trace.attention_graph import positions_name
from qkv.interpret.trace.edits import Edit, is_overridden
from qkv.interpret.trace.graph import Graph, HookPoint, Node
from qkv.interpret.trace.model_graph import build_graph
from qkv.interpret.trace.recompute import normalize_rows
from qkv.interpret.trace.trace import Trace
from qkv.model import AttentionCore, Decoder, Encoder, Model, Stack, Translator, View

Rows = Sequence[int] | Mapping[str, Sequence[int]] | None

ALL_VALUES = ("*",)
LAYERS = "layers"  # a pattern of its own: what enters and leaves each layer
MAX_BYTES = 2 * 2**30
STEPS = tuple(step.name for step in fields(AttentionSteps))


@dataclass(frozen=True)
class TokenizedInput:
    """What a model reads: the ids of a text, or of a source and a target, and their tokens.

    word_ids: the number of each token's word, −1 for special tokens. output_names: the token or
    label that each logit stands for.
    """

    ids: Mapping[str, list[int]]
    tokens: Mapping[str, tuple[str, ...]]
    word_ids: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    output_names: tuple[str, ...] = ()

    @classmethod
    def from_ids(cls, **ids: Sequence[int]) -> TokenizedInput:
        """Without a tokenizer: each token is named by its id."""
        rows = {name: [int(id) for id in row] for name, row in ids.items()}
        return cls(rows, {name: tuple(map(str, row)) for name, row in rows.items()})


def capture_trace(
    model: Model,
    inputs: TokenizedInput,
    keep: Sequence[str] = ALL_VALUES,
    rows: Rows = None,
    edits: Sequence[Edit] = (),
    metadata: Mapping[str, str] | None = None,
    served: Tensor | None = None,
    graph: Graph | None = None,
) -> Trace:
    """The values whose names match one of the patterns in `keep`, from one forward pass.

    rows: keep scores, weights and the steps between of these queries only (−1 is the last), so that
    memory grows with the length of the text and not with its square. A list is about the text or
    the target; {"source": [0]} names the sequence. served: the logits of the model that answers
    requests, to be compared with this pass. graph: the model's graph, if it has been built before.
    """
    if graph is None:
        graph = build_graph(model)
    nodes = select_nodes(graph, keep)
    query_rows = _rows_by_sequence(rows, inputs)
    check_memory(nodes, model, inputs, query_rows)
    # The trace's graph says what was computed; edits look values up in the model's own.
    edited = graph
    for edit in edits:
        edited = edit.revise(edited)
    with ExitStack() as stack:
        stack.enter_context(eval_mode(model))
        stack.enter_context(torch.no_grad())
        # Hooks run in the order they were registered: those that capture see the edited values.
        for edit in edits:
            stack.enter_context(edit.applied(model, graph))
        values = stack.enter_context(capture_values(model, [*nodes, graph["output"]], query_rows))
        values |= _forward(model, inputs, edits)
    if served is not None:
        values["served"] = served
    if "probabilities" in graph.nodes:
        logits = values[graph.resolve("output")].cpu()
        # Over 32,000 logits torch's float32 softmax is up to 2e-5 off on CPUs without AVX-512.
        values["probabilities"] = logits.softmax(dim=-1, dtype=torch.float64).float()
    return Trace(
        graph=edited,
        tensors={node.name: values[node.name].cpu() for node in nodes if node.name in values},
        parameters=dict(model.named_parameters(remove_duplicate=False)),
        tokens={name: _edit_tokens(name, row, edits) for name, row in inputs.tokens.items()},
        word_ids=inputs.word_ids,
        rows=query_rows,
        metadata=metadata or {},
        output_names=inputs.output_names,
        edits=tuple(str(edit) for edit in edits),
        overrides=frozenset(name for name in graph.nodes if is_overridden(name, edits, graph)),
    )


def select_nodes(graph: Graph, keep: Sequence[str]) -> list[Node]:
    """The nodes whose name or alias matches a pattern, in the order of computation."""
    names: set[str] = set()
    for pattern in [keep] if isinstance(keep, str) else keep:
        if pattern == LAYERS:
            names.update(graph.layers)
            continue
        matches = [name for name in graph.nodes if fnmatchcase(name, pattern)]
        matches += [node for alias, node in graph.aliases.items() if fnmatchcase(alias, pattern)]
        if not matches:
            raise UsageError(unknown("value", pattern, [*graph.nodes, *graph.aliases]))
        names.update(matches)
    return [node for node in graph if node.name in names]


def check_memory(
    nodes: Sequence[Node],
    model: Model,
    inputs: TokenizedInput,
    rows: Mapping[str, tuple[int, ...]],
) -> None:
    """Raise a UsageError if the values of these nodes take more memory than is reasonable."""
    total = sum(value_bytes(node, model, inputs, rows) for node in nodes)
    if total > MAX_BYTES:
        raise UsageError(
            f"these values of so long a text take {total / 2**30:.1f} GB; keep some of them, as in "
            'keep=["*.weights"], or some queries, as in rows=[-1]'
        )


def value_bytes(
    node: Node, model: Model, inputs: TokenizedInput, rows: Mapping[str, tuple[int, ...]]
) -> int:
    """The size of a float32 value, from the lengths of its axes."""
    config = model.config
    stacks = {side: part for side, part in config if isinstance(part, Stack)}
    stack = stacks.get(node.name.partition(".")[0]) or list(stacks.values())[-1]
    heads = stack.attention
    sizes = {
        "H": heads.heads,
        "K": heads.num_kv_heads,
        "E": heads.key_width(stack.width),
        "D": stack.width,
        "H·E": heads.heads * heads.value_head_width(stack.width),
        "F": stack.feed_forward.width,
        "V": config.embedding.vocabulary,
    }
    for axis, sequence in node.sequences.items():
        sizes[axis] = len(inputs.ids[sequence])
        if axis == "T" and node.by_row and sequence in rows:
            sizes[axis] = len(rows[sequence])
    return 4 * math.prod(sizes.get(axis, 1) for axis in node.axes)


def _rows_by_sequence(rows: Rows, inputs: TokenizedInput) -> dict[str, tuple[int, ...]]:
    """The queries asked for, counted from the front, of each sequence named."""
    if rows is None:
        return {}
    if not isinstance(rows, Mapping):
        last = list(inputs.ids)[-1]  # the text, or the target
        rows = {last: rows}
    for name in rows.keys() - inputs.ids.keys():
        raise UsageError(unknown("sequence", name, inputs.ids))
    if not all(len(queries) for queries in rows.values()):
        raise UsageError("rows is empty; name a query, as in rows=[-1], or leave it out")
    return {name: normalize_rows(queries, len(inputs.ids[name])) for name, queries in rows.items()}


def _edit_tokens(sequence: str, tokens: tuple[str, ...], edits: Sequence[Edit]) -> tuple[str, ...]:
    for edit in edits:
        tokens = tuple(edit.tokens(sequence, list(tokens)))
    return tokens


def _forward(model: Model, inputs: TokenizedInput, edits: Sequence[Edit]) -> dict[str, Tensor]:
    """Run one forward pass; returns what went in, by name."""
    device = model.embedding.weight.device
    values: dict[str, Tensor] = {}
    ids: dict[str, Tensor] = {}
    for sequence, row in inputs.ids.items():
        if not row:
            raise UsageError(f"the {sequence} is empty: there is nothing to look at")
        for edit in edits:
            row = edit.ids(sequence, row)
        ids[sequence] = torch.tensor([row], device=device)
        values["source_ids" if sequence == "source" else "ids"] = ids[sequence]
        values[positions_name(sequence)] = torch.arange(len(row))
    if isinstance(model, Translator):
        model(ids["source"], ids["target"])
    else:
        assert isinstance(model, Encoder | Decoder)
        model(ids["text"])
    return values


@contextmanager
def capture_values(
    model: nn.Module, nodes: Iterable[Node], rows: Mapping[str, tuple[int, ...]]
) -> Iterator[dict[str, Tensor]]:
    """Inside, every forward pass puts the values of these nodes into the dictionary given."""
    by_call: dict[str, dict[int, list[Node]]] = defaultdict(lambda: defaultdict(list))
    for node in nodes:
        if node.hook_point is not None:
            by_call[node.hook_point.module][node.hook_point.call].append(node)
    values: dict[str, Tensor] = {}
    handles: list[RemovableHandle] = []
    try:
        for path, calls in by_call.items():
            module = model.get_submodule(path)
            hook = _CaptureHook(calls, values, rows)
            handles.append(module.register_forward_hook(hook))
            if (
                isinstance(module, AttentionCore) and module.hook_point.has_hooks
            ):  # an edit changes the steps
                handles.append(module.hook_point.register_forward_hook(hook.on_steps))
        yield values
    finally:
        for handle in handles:
            handle.remove()


class _CaptureHook:
    """A forward hook that stores the values of one module's nodes, call by call."""

    def __init__(
        self,
        calls: dict[int, list[Node]],
        values: dict[str, Tensor],
        rows: Mapping[str, tuple[int, ...]],
    ) -> None:
        self.calls = calls
        self.values = values
        self.rows = rows
        self.call = 0
        self.edited_steps: AttentionSteps | None = None

    def on_steps(
        self, module: nn.Module, arguments: tuple[Any, ...], steps: AttentionSteps
    ) -> None:
        """Remember the steps of attention as an edit changed them."""
        self.edited_steps = steps

    def __call__(self, module: nn.Module, arguments: tuple[Any, ...], result: Tensor) -> None:
        # A block that layers share is called once per layer; each call has its own nodes.
        nodes = self.calls.get(self.call, [])
        self.call += 1
        by_row = [node for node in nodes if node.by_row]
        if by_row:
            assert isinstance(module, AttentionCore)
            q, k, v, mask = arguments
            rows = self.rows.get(by_row[0].sequences["T"])
            explicit = _explicit_attention(module, q, k, v, mask, rows, self.edited_steps)
        for node in nodes:
            assert node.hook_point is not None
            if node.by_row:
                value = explicit[node.hook_point.key]
            else:
                value = _value_at(node.hook_point, arguments, result)
            self.values[node.name] = value.detach()


def _value_at(hook_point: HookPoint, arguments: tuple[Any, ...], result: Tensor) -> Tensor:
    match hook_point.kind:
        case "result":
            return result
        case "argument":
            value = arguments[int(hook_point.key)]
        case _:
            view = arguments[1]
            assert isinstance(view, View)
            value = getattr(view.rope, hook_point.key)
    assert isinstance(value, Tensor)
    return value


def _explicit_attention(
    module: AttentionCore,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Mask,
    rows: Sequence[int] | None,
    edited: AttentionSteps | None,
) -> dict[str, Tensor]:
    """Every step of attention by name for these queries, with the mask ("seen") and the bias.

    A tile per query, so that only (1, S) scores exist at a time where `rows` names few queries.
    """
    T = q.shape[2]
    S = k.shape[2]
    spans = [range(T)]
    if rows is not None:
        spans = [range(row, row + 1) for row in rows]
    # With a cache there are more keys than queries: the first query is at position S − T.
    tiles = [Tile(span, range(S), S - T, q.device) for span in spans]
    steps: list[AttentionSteps] = []
    for tile in tiles:
        if edited is not None:
            steps.append(AttentionSteps(*(_queries(getattr(edited, step), tile) for step in STEPS)))
        else:
            steps.append(tile_steps(_queries(q, tile), k, v, mask, tile, module.scale, module.cap))
    values = {step: _concat([getattr(each, step) for each in steps], dim=2) for step in STEPS}
    values["seen"] = _concat([_dense(mask.allowed_in, tile, True) for tile in tiles], dim=-2)
    values["bias"] = _concat([_dense(mask.bias_in, tile, 0.0) for tile in tiles], dim=-2)
    return values


def _queries(tensor: Tensor, tile: Tile) -> Tensor:
    """The tile's queries of (B, H, T, …)."""
    return tensor[:, :, tile.queries.start : tile.queries.stop]


def _dense(part: Callable[[Tile], Tensor | None], tile: Tile, default: bool | float) -> Tensor:
    """The mask or bias of a tile at its full size; `default` everywhere if the mask has none."""
    size = (len(tile.queries), len(tile.keys))
    grid = part(tile)
    if grid is None:
        return torch.full(size, default, device=tile.device)
    return grid.expand(*grid.shape[:-2], *size)


def _concat(parts: list[Tensor], dim: int) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(parts, dim=dim)
