"""Activation patching over a whole model: which layer carries what, at which position or head.

    sweep = model.patch_sweep("The Eiffel Tower is in", "The Colosseum is in")
    sweep.recovered  # (layers, positions): 1 where the patch brings the clean output back
    sweep.draw("sweep.png")

The model reads the corrupted text once for every cell, each time with one activation taken from
the clean text (Meng et al. 2022, "Locating and editing factual associations in GPT"; Heimersheim
and Nanda 2024, "How to use and interpret activation patching").
"""

from __future__ import annotations

import html
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np

from qkv.errors import UsageError, unknown
from qkv.files import one_line
from qkv.interpret.glass_box import tokenize_input
from qkv.interpret.matrix import cosine, format_number, unique_labels
from qkv.interpret.trace import Graph, PatchActivation, TokenizedInput, Trace, capture_trace
from qkv.interpret.trace.operations import Array
from qkv.interpret.trace.recompute import to_numpy
from qkv.model import Classify, Encoder, TextVector, Translator

if TYPE_CHECKING:
    from qkv.interpret.glass_box import GlassBox

Part = Literal["residual", "attention", "feed_forward", "cross", "heads"]
PARTS: tuple[str, ...] = get_args(Part)

# The activation that each part patches: the first of these names that a layer has. An attention
# or feed-forward from outside this package is one step.
ACTIVATIONS = {
    "residual": ("",),
    "attention": (".attention.output", ".attention"),
    "feed_forward": (".feed_forward.down", ".feed_forward"),
    "cross": (".cross.output", ".cross"),
    "heads": (".attention.mixed",),
}

MAX_TABLE_TOKEN = 12  # characters of a token above a column

Metric = Callable[[Trace], float]
Progress = Callable[[int, int], None]  # cells done, of all


@dataclass(frozen=True)
class LogitDifference:
    """The logit of an answer minus that of another one, at position `index`; None for labels."""

    name: str
    answer: int
    against: int
    index: int | None = None

    def __call__(self, trace: Trace) -> float:
        logits = _logits(trace, self.index)
        return float(logits[self.answer] - logits[self.against])


@dataclass(frozen=True, eq=False)
class CosineTo:
    """The cosine between the model's vector and another one."""

    name: str
    vector: Array

    def __call__(self, trace: Trace) -> float:
        return cosine(to_numpy(trace["output"]).ravel().astype(np.float64), self.vector)


@dataclass(frozen=True, eq=False)
class PatchSweep:
    """The metric for every patch, (layers, positions), or (layers, heads).

    clean, corrupted: the metric without a patch. names: the patched activation of each layer.
    columns: the positions or heads; labels: their tokens in the corrupted text, or "head 0".
    trace: the corrupted run, for its provenance.
    """

    values: Array
    clean: float
    corrupted: float
    metric: str
    part: str
    names: tuple[str, ...]
    columns: tuple[int, ...]
    labels: tuple[str, ...]
    clean_text: str
    corrupted_text: str
    trace: Trace

    @property
    def recovered(self) -> Array:
        """0 where a patch changes nothing, 1 where it brings the clean metric back; NaN if the
        clean and corrupted texts have the same metric."""
        difference = self.clean - self.corrupted
        if difference == 0:
            return np.full_like(self.values, np.nan)
        recovered: Array = (self.values - self.corrupted) / difference
        return recovered

    def draw(self, path: str | os.PathLike[str]) -> None:
        """Write the sweep as a picture: .png, .svg or .pdf."""
        from qkv.interpret.export import draw_sweep

        draw_sweep(self, path)

    def json(self) -> dict[str, Any]:
        return {
            "clean_text": self.clean_text,
            "corrupted_text": self.corrupted_text,
            "metric": self.metric,
            "clean": self.clean,
            "corrupted": self.corrupted,
            "part": self.part,
            "names": list(self.names),
            "columns": list(self.columns),
            "labels": list(self.labels),
            "values": self.values.tolist(),
        }

    def lines(self, width: int = 80) -> list[str]:
        """The recovered fraction of each cell as a table in lines of at most `width` columns."""
        from qkv.interpret.render.sections import TextTable
        from qkv.interpret.render.terminal_text import table_lines

        columns = tuple(
            f"{column} {label[:MAX_TABLE_TOKEN]}" if self.part != "heads" else label
            for column, label in zip(self.columns, self.labels, strict=True)
        )
        cells = [[format_number(float(cell), 2) for cell in row] for row in self.recovered]
        table = TextTable("patched", self.names, columns, cells)
        return [
            *self._headline(),
            "",
            *table_lines(table, width),
            "",
            "0: as corrupted; 1: the clean output is back",
        ]

    def _headline(self) -> list[str]:
        return [
            f"clean:     {self.clean:9.4f}  {one_line(self.clean_text)}",
            f"corrupted: {self.corrupted:9.4f}  {one_line(self.corrupted_text)}",
            f"metric: {self.metric}",
        ]

    def __repr__(self) -> str:
        rows, columns = self.values.shape
        what = "heads" if self.part == "heads" else "positions"
        line = f"<PatchSweep of {self.part}: {rows} layers × {columns} {what}, {self.metric}"
        recovered = self.recovered
        if np.isnan(recovered).all():
            return f"{line}; clean and corrupted do not differ>"
        row, column = np.unravel_index(np.nanargmax(recovered), recovered.shape)
        best = f"{self.names[row]} at {self.columns[column]} “{self.labels[column]}”"
        return f"{line}; most at {best}: {recovered[row, column]:.2f} recovered; .draw(file)>"

    def _repr_html_(self) -> str:
        """A table coloured by the recovered fraction, for notebooks."""
        head = "".join(f"<th>{html.escape(label)}</th>" for label in self.labels)
        rows = []
        for name, row in zip(self.names, self.recovered, strict=True):
            cells = "".join(_html_cell(float(cell)) for cell in row)
            rows.append(f"<tr><th>{html.escape(name)}</th>{cells}</tr>")
        title = html.escape(" · ".join(self._headline()))
        table = f"<tr><th></th>{head}</tr>{''.join(rows)}"
        return f"<table><caption>{title}</caption>{table}</table>"


def patch_sweep(
    box: GlassBox,
    clean: str,
    corrupted: str,
    metric: Metric | None = None,
    *,
    answer: str | int | None = None,
    against: str | int | None = None,
    part: Part = "residual",
    positions: Sequence[int] | None = None,
    side: str | None = None,
    target: str | None = None,
    progress: Progress | None = None,
) -> PatchSweep:
    """See `GlassBox.patch_sweep`."""
    if part not in PARTS:
        raise UsageError(unknown("part", part, PARTS))
    if metric is not None and (answer is not None or against is not None):
        raise UsageError("answer and against make a metric of their own; leave metric out")
    if part == "heads" and positions is not None:
        raise UsageError('part="heads" patches every position; leave positions out')
    if isinstance(box.model, Translator) and target is None:
        target = box.own_translation(clean)
    names = _activations(box.graph, part, side)
    sources = tokenize_input(box.model, box.tokenizer, clean, target)
    inputs = tokenize_input(box.model, box.tokenizer, corrupted, target)
    _expect_equal_lengths(sources, inputs)
    output = ["output"]
    clean_trace = capture_trace(box.model, sources, [*names, *output], graph=box.graph)
    corrupted_trace = box.trace(corrupted, target=target, keep=[*output, "served"])
    if metric is None:
        metric = default_metric(box, clean_trace, corrupted_trace, inputs, answer, against)
    columns, labels = _columns(box, clean_trace, names[0], corrupted_trace, part, positions)
    values = np.zeros((len(names), len(columns)))
    for row, name in enumerate(names):
        for index, column in enumerate(columns):
            if part == "heads":
                patch = PatchActivation(name, clean_trace, heads=column)
            else:
                patch = PatchActivation(name, clean_trace, positions=column)
            trace = capture_trace(box.model, inputs, output, edits=[patch], graph=box.graph)
            values[row, index] = metric(trace)
            if progress is not None:
                progress(row * len(columns) + index + 1, values.size)
    return PatchSweep(
        values=values,
        clean=float(metric(clean_trace)),
        corrupted=float(metric(corrupted_trace)),
        metric=metric_name(metric),
        part=part,
        names=names,
        columns=columns,
        labels=labels,
        clean_text=clean,
        corrupted_text=corrupted,
        trace=corrupted_trace,
    )


def metric_name(metric: Metric) -> str:
    """The name of a metric of ours, or of the user's function."""
    if isinstance(metric, LogitDifference | CosineTo):
        return metric.name
    return str(getattr(metric, "__name__", "metric"))


def default_metric(
    box: GlassBox,
    clean: Trace,
    corrupted: Trace,
    inputs: TokenizedInput,
    answer: str | int | None,
    against: str | int | None,
) -> LogitDifference | CosineTo:
    """The logit difference of two answers; for a model that gives vectors, the cosine to the clean.

    answer: by default the one whose probability is so much higher for the clean text; against: so
    much higher for the corrupted one.
    """
    output = box.model.config.output
    if isinstance(output, TextVector):
        if answer is not None or against is not None:
            raise UsageError("this model gives a vector, which has no answer; leave answer out")
        vector = to_numpy(clean["output"]).ravel().astype(np.float64)
        return CosineTo("cosine to the clean vector", vector)
    index = None if isinstance(output, Classify) else _answer_position(box, inputs)
    rise = _probs(clean, index) - _probs(corrupted, index)
    first = None if answer is None else _answer_number(box, answer)
    second = None if against is None else _answer_number(box, against)
    if first is None:
        order = np.argsort(-rise, kind="stable")
        first = int(order[0]) if int(order[0]) != second else int(order[1])
    if second is None:
        order = np.argsort(rise, kind="stable")
        second = int(order[0]) if int(order[0]) != first else int(order[1])
    name = clean.output_name(first)
    if first == second:
        raise UsageError(f"answer and against are both “{name}”; name two")
    title = f"logit difference “{name}” − “{clean.output_name(second)}”"
    return LogitDifference(title, first, second, index)


def _activations(graph: Graph, part: str, side: str | None) -> tuple[str, ...]:
    """The name of the patched activation in each layer."""
    stacks = [name for name in ("encoder", "decoder") if graph.layer_count(name)]
    stack = side or stacks[0]
    if part == "cross" and side is None:
        stack = stacks[-1]
    if stack not in stacks:
        raise UsageError(f"this model has no {stack}; it has {' and '.join(stacks)}")
    names = []
    for layer in range(graph.layer_count(stack)):
        candidates = [f"{stack}.{layer}{ending}" for ending in ACTIVATIONS[part]]
        known = [name for name in candidates if name in graph.nodes or name in graph.aliases]
        if not known:
            raise UsageError(f'the {stack} has no {candidates[0]}, so part="{part}" does not suit')
        names.append(known[0])
    return tuple(names)


def _expect_equal_lengths(clean: TokenizedInput, corrupted: TokenizedInput) -> None:
    for sequence, ids in clean.ids.items():
        other = len(corrupted.ids[sequence])
        if len(ids) != other:
            raise UsageError(
                f"the clean text has {len(ids)} tokens and the corrupted one {other}; patching "
                "position by position needs as many in both"
            )


def _columns(
    box: GlassBox,
    clean: Trace,
    name: str,
    corrupted: Trace,
    part: str,
    positions: Sequence[int] | None,
) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """The numbers of the columns and their labels."""
    if part == "heads":
        heads = clean[name].shape[1]
        return tuple(range(heads)), tuple(f"head {head}" for head in range(heads))
    tokens = unique_labels(corrupted.tokens[box.graph[name].sequences["T"]])
    count = len(tokens)
    if positions is None:
        positions = range(count)
    for position in positions:
        if not -count <= position < count:
            raise UsageError(
                f"position {position} does not exist; the text has positions 0 to {count - 1}"
            )
    columns = tuple(position % count for position in positions)
    return columns, tuple(tokens[column] for column in columns)


def _answer_position(box: GlassBox, inputs: TokenizedInput) -> int:
    """The last position; of a masked-language model the masked one."""
    ids = list(inputs.ids.values())[-1]
    if not isinstance(box.model, Encoder):
        return len(ids) - 1
    if box.tokenizer.special_tokens.mask is None or box.tokenizer.mask_id not in ids:
        raise UsageError(
            "the text has no mask token, so there is no answer to compare; put one in, or pass "
            "a metric"
        )
    return ids.index(box.tokenizer.mask_id)


def _logits(trace: Trace, index: int | None) -> Array:
    """The logits of the labels, or of the tokens at one position."""
    logits: Array = to_numpy(trace["output"])[0].astype(np.float64)
    if index is not None:
        logits = logits[index]
    return logits


def _probs(trace: Trace, index: int | None) -> Array:
    logits = _logits(trace, index)
    probs: Array = np.exp(logits - np.logaddexp.reduce(logits))
    return probs


def _answer_number(box: GlassBox, answer: str | int) -> int:
    """The number of a label or token."""
    from qkv.interpret.attribution.readouts import resolve_token

    output = box.model.config.output
    if not isinstance(output, Classify):
        return resolve_token(box.tokenizer, answer)
    if isinstance(answer, int):
        answer = str(answer)
    if answer not in output.labels:
        raise UsageError(unknown("label", answer, output.labels))
    return output.labels.index(answer)


def _html_cell(value: float) -> str:
    """A cell from white (0) to blue (1), or to red below 0."""
    if np.isnan(value):
        return "<td></td>"
    strength = min(abs(value), 1.0)
    colour = "43,116,179" if value >= 0 else "190,60,50"
    number = format_number(value, 2)
    return f'<td style="background:rgba({colour},{strength:.2f})">{number}</td>'
