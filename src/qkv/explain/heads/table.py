"""Reports of heads for people: one row a head, no wider than 80 columns."""

from collections.abc import Iterator, Sequence
from itertools import groupby

from qkv.explain.heads.places import BROAD, MIXED, POSITION
from qkv.explain.heads.report import HeadReport
from qkv.explain.matrix import figure

TITLES = f"{'head':>4}  {'looks at':<21} {'weight':>6} {'chance':>6} {'bits':>5} {'even':>5}"
TITLES += f" {'adds':>5} {'effect':>6}  remarks"
MEANING = (
    "weight: on what it looks at; chance: the same if it looked everywhere alike",
    "bits: entropy of its weights; even: as a share of the most there can be",
    "adds: length of what it adds, 1 for the mean head of its layer",
    "effect: share of the {answer} that moves when it is switched off",
    "dead: its absence changes nothing; as 3: it looks where head 3 of its layer does",
)
WARNING = "Attention says where a head looks, not why the model answers as it does."


def table(reports: Sequence[HeadReport], vectors: bool = False) -> Iterator[str]:
    """Lines grouped by layer, then what the columns mean. vectors: the model answers with these."""
    for name, group in groupby(reports, key=lambda report: report.name):
        yield from (_title(name), TITLES)
        yield from (_row(report).rstrip() for report in group)
        yield ""
    answer = "vector" if vectors else "probability"
    yield from (line.format(answer=answer) for line in MEANING)
    yield WARNING


def looks_at(report: HeadReport) -> str:
    """In a word or three, as in "previous token" or "mixed: itself"."""
    pattern = report.pattern
    if pattern == POSITION and report.offset is not None:
        pattern = _step(report.offset)
    return f"{MIXED}: {pattern}" if report.kind == MIXED else pattern


def _row(report: HeadReport) -> str:
    chance = "" if report.kind == BROAD else figure(report.chance, 2)
    return (
        f"{report.head:>4}  {looks_at(report):<21} {figure(report.weight, 2):>6} {chance:>6} "
        f"{figure(report.entropy, 2):>5} {figure(report.evenness, 2):>5} "
        f"{figure(report.adds, 2):>5} {figure(report.effect, 3):>6}  {_remark(report)}"
    )


def _remark(report: HeadReport) -> str:
    """The nearest of the heads that look at the same is named; … if there are more."""
    said = ["dead"] * report.dead
    if report.duplicates:
        said.append(f"as {report.duplicates[0].head}{'…' * (len(report.duplicates) > 1)}")
    return ", ".join(said)


def _step(offset: int) -> str:
    if offset == 0:
        return "same position"
    way = "back" if offset < 0 else "ahead"
    return f"{abs(offset)} {way}"


def _title(name: str) -> str:
    stack, layer, part = name.split(".")
    return f"{stack} layer {layer}, {'cross attention' if part == 'cross' else 'attention'}"
