"""Traces of tiny models for pages, and what a page must show of them."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from tests.model.odd_models import GROUPED, decoder

import qkv
from qkv.interpret.glass_box import model_output
from qkv.interpret.matrix import format_number
from qkv.interpret.page import write_page
from qkv.interpret.page.payload import as_matrix
from qkv.interpret.trace import TokenizedInput, Trace, capture_trace
from qkv.model import ModelConfig, Rope, SwiGLU, Translator

WORDS = ("write", "a", "short", "poem", "today")
SMALL = decoder(attention=GROUPED, position=Rope(), feed_forward=SwiGLU(width=11))


def make_trace(
    config: ModelConfig = SMALL,
    words: tuple[str, ...] = WORDS,
    outputs: tuple[str, ...] = (),
    **more: object,
) -> Trace:
    """A pass of a model with random parameters, large enough to make decided weights."""
    torch.manual_seed(0)
    model = qkv.build(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.3)
    sides = ("source", "target") if isinstance(model, Translator) else ("text",)
    ids, tokens = {}, {}
    for cut, side in enumerate(sides):
        kept = words[: len(words) - cut]
        ids[side] = torch.randint(1, 19, (len(kept),)).tolist()
        tokens[side] = tuple(kept)
    reading = TokenizedInput(ids, tokens, output_names=outputs)
    served = None if "edits" in more else model_output(model, reading)
    about = {"text": " ".join(words)}
    return capture_trace(model, reading, metadata=about, served=served, **more)


def write_html(trace: Trace, folder: Path, **more: object) -> Path:
    path = folder / "page.html"
    write_page(trace, path, **more)
    return path


def cells(trace: Trace, name: str, head: int) -> list[list[str]]:
    """The figures of a step as they must stand on the page."""
    value = as_matrix(trace, name)
    if value.ndim == 3:
        value = value[head * len(value) // heads_of(trace, name)]
    return [[displayed_number(cell) for cell in row] for row in value]


def heads_of(trace: Trace, name: str) -> int:
    """The query heads of the attention that a step belongs to."""
    return trace[f"{name.rpartition('.')[0]}.weights"].shape[1]


def displayed_number(cell: float) -> str:
    return "NaN" if np.isnan(float(cell)) else format_number(float(cell), 4)


def by_attention(trace: Trace) -> Iterator[tuple[str, int]]:
    """Every head there is: the attention's name and the head's number."""
    for name in trace:
        if name.endswith(".weights"):
            for head in range(trace[name].shape[1]):
                yield name.removesuffix(".weights"), head


def by_head(trace: Trace, name: str) -> bool:
    return trace.node(name).axes[1:2] in (("H",), ("K",))
