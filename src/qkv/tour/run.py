"""The tour itself: what is shown, in order. Lines go to the caller as they are ready."""

from collections.abc import Callable, Iterator
from typing import Protocol

import torch
from torch import Tensor

from qkv.explain.examples import POEM
from qkv.explain.render.page import Look, Table
from qkv.explain.render.text import table_lines, text
from qkv.explain.walk import walk
from qkv.model import Model
from qkv.tour.numerals import Numerals
from qkv.tour.sentiment import Sentiment
from qkv.tour.sorting import LENGTH, Sorting, spell

Progress = Callable[[str, int, float], None]  # which model, step, loss


def tour(width: int, progress: Progress, device: torch.device) -> Iterator[str]:
    """The worked example, then a model of each family: trained here, asked, and looked into."""
    yield from _heading("1. Attention by hand")
    yield text(Look(walk(POEM)), width)
    yield from _heading("2. Encoder-only: is a sentence positive or negative?")
    yield from _sentiment(progress, device)
    yield from _heading("3. Decoder-only: the next token, until five digits are sorted")
    yield from _sorting(progress, device)
    yield from _heading("4. Encoder–decoder: numbers from English to German")
    yield from _numerals(width, progress, device)
    yield from _heading("Next")
    yield "qkv explain --mask causal         the same example when no word sees a later one"
    yield "qkv explain --worksheet-template  start with your own words and matrices"
    yield "qkv lemma                         why attention divides by √d_k, measured"


def _sentiment(progress: Progress, device: torch.device) -> Iterator[str]:
    demo = Sentiment(device)
    _learn(demo, "encoder", progress)
    yield _size(demo.model, f"{len(demo.train)} sentences of a small grammar written for this tour")
    yield (
        f"{demo.accuracy():.1%} right on {len(demo.test)} sentences with pairs like "
        '"not … lovely", of which it never saw one'
    )
    for said in ("the film was not very lovely", "the ending seemed indeed so clever"):
        label, share = demo.classify(said)
        yield f"  {said}  →  {label} ({share:.1%})"


def _sorting(progress: Progress, device: torch.device) -> Iterator[str]:
    demo = Sorting(device)
    _learn(demo, "decoder", progress)
    yield _size(demo.model, f"{len(demo.train):,} rows of digits")
    yield f"{demo.accuracy():.1%} of {len(demo.test):,} rows it never saw come out sorted"
    for row in demo.complete(demo.test[:2, : LENGTH + 1]):
        yield f"  {spell(row)}"
    yield f"  no future leaks: changing the last token moves earlier scores by {_leak(demo):.1g}"


def _numerals(width: int, progress: Progress, device: torch.device) -> Iterator[str]:
    demo = Numerals(device)
    _learn(demo, "encoder–decoder", progress)
    yield _size(demo.model, f"{len(demo.train)} of {len(demo.train) + len(demo.test)} numbers")
    yield f"{demo.accuracy():.1%} right on the {len(demo.test)} numbers it never saw"
    english = demo.test[0][0]
    german = demo.translate(english)
    yield f"  {' '.join(english)}  →  {' '.join(german)}"
    yield "  what each German word read (cross attention of the last layer, mean of its heads):"
    weights = demo.alignment(english, german)
    cells = [[f"{cell:.2f}" for cell in row] for row in weights.tolist()]
    table = Table("reads →", tuple(german), tuple(english), cells)
    yield from ("    " + line for line in table_lines(table, width - 4))


class _Demo(Protocol):
    def learn(self) -> Iterator[float]: ...


def _learn(demo: _Demo, name: str, progress: Progress) -> None:
    for step, loss in enumerate(demo.learn(), start=1):
        progress(name, step, loss)


@torch.no_grad()
def _leak(demo: Sorting) -> float:
    rows = demo.test[:64, :-1]
    changed = rows.clone()
    changed[:, -1] = (changed[:, -1] + 1) % 10
    scores, others = (demo.model(ids)[:, :-1] for ids in (rows, changed))
    moved: Tensor = (scores - others).abs().max()
    return float(moved)


def _size(model: Model, data: str) -> str:
    return f"{model.config.parameters():,} parameters, trained just now on {data}"


def _heading(title: str) -> Iterator[str]:
    yield ""
    yield title
    yield "─" * len(title)
