"""The tour for a terminal of 80 columns: plain lines, which read as well in a file."""

from collections.abc import Iterator
from pathlib import Path
from textwrap import wrap

from qkv.check import Report
from qkv.explain.examples import POEM
from qkv.explain.render.page import Look
from qkv.explain.render.text import text
from qkv.explain.walk import walk
from qkv.files import one_line
from qkv.tour.commands import Lines, for_ones_own, for_these
from qkv.tour.looks import Groups
from qkv.tour.outcome import Outcome

WIDTH = 80
STEPS = ("weights", "output")  # of the worked example


def heading(number: int, title: str) -> Iterator[str]:
    line = f"{number}. {title}"
    yield from ("", line, "─" * len(line))


def example() -> Iterator[str]:
    """What attention weighs and what comes out; the other steps are a command away."""
    yield text(Look(walk(POEM), steps=STEPS), WIDTH)
    yield ""
    yield from said("Every step with its arithmetic: qkv explain")


def trained(outcome: Outcome) -> Iterator[str]:
    yield from said(outcome.trained)
    yield from said(outcome.judged)


def grouped(found: Groups) -> Iterator[str]:
    """Each group by its words, what its texts are labelled, and a few of them."""
    count, clusters = len(found.clustering.texts), found.clustering.clusters
    yield from said(
        f"{count:,} held-out reviews fall into {len(clusters)} groups by the vectors of the "
        "encoder. It learnt to part labels, so groups part them too; grouping itself sees none."
    )
    for each in clusters:
        label, share = found.share(each.id)
        yield ""
        yield from said(f"{each.size:,} texts: {each.name} ({share:.0%} are {label})")
        for number in found.members(each.id):
            yield f"  {_cut(found.clustering.texts[number], WIDTH - 2)}"


def proved(name: str, report: Report) -> str:
    """One line; the first violation with its place, if there is one."""
    applying = [result for result in report.checks if result.applies]
    holding = sum(result.ok for result in applying)
    line = f"{name:<12} {holding} of {len(applying)} checks hold"
    first = report.first
    return line if first is None else f"{line}; {first.name} does not, first at {first.place}"


def ending(folder: Path, page: Path) -> Iterator[str]:
    """Where everything is, and what to do with it."""
    yield from ("", "Next", "────")
    yield f"The page with pictures: {page}"
    names = ", ".join(str(folder / name) for name in ("sentiment", "language", "translation"))
    yield from said(f"The three models stay: {names}.")
    yield ""
    yield from _commands(for_these(folder))
    yield ""
    yield "With a file of your own:"
    yield from _commands(for_ones_own())


def _commands(lines: Lines) -> Iterator[str]:
    for command, purpose in lines:
        yield f"  {command}"
        yield f"      {purpose}"


def said(line: str, indent: str = "") -> Iterator[str]:
    yield from wrap(line, WIDTH, initial_indent=indent, subsequent_indent=indent)


def _cut(line: str, room: int) -> str:
    flat = one_line(line)
    return flat if len(flat) <= room else f"{flat[: room - 1]}…"
