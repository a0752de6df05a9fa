"""The committed results of the benches of speed as one table: work, peer, ours, goal."""

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

RESULTS = Path(__file__).resolve().parents[1] / "bench" / "results"
COMPILED = " --compile"


class Goal(NamedTuple):
    """How our figure should compare with the peer's."""

    said: str
    holds: Callable[[float], bool]


class Cell(NamedTuple):
    """What we do, and how it compares with the peer."""

    ours: str
    ratio: float

    def __str__(self) -> str:
        return f"{self.ours}, {self.ratio:.2f} ×"


class Row(NamedTuple):
    work: str
    peer: str
    plain: Cell | None
    compiled: Cell | None
    goal: Goal | None

    def __str__(self) -> str:
        cells = [cell for cell in (self.plain, self.compiled) if cell is not None]
        said = "–"
        if self.goal is not None:
            reached = any(self.goal.holds(cell.ratio) for cell in cells)
            said = self.goal.said if reached else f"{self.goal.said}, not reached"
        plain, compiled = ("–" if cell is None else cell for cell in (self.plain, self.compiled))
        return f"| {self.work} | {self.peer} | {plain} | {compiled} | {said} |"


def bench_table(folder: str = "") -> str:
    """Of the results in that folder; those of other machines stand in folders of their own."""
    results = RESULTS / folder
    lines = ["| work | peer | qkv | qkv `--compile` | goal |", "|---|---|---|---|---|"]
    for name, read in READERS.items():
        path = results / f"{name}.json"
        if path.is_file():
            lines += map(str, read(json.loads(path.read_text("utf-8"))))
    return "\n".join(lines)


def at_least(goal: float) -> Goal:
    return Goal(f"≥ {goal} ×", lambda ratio: ratio >= goal)


def _faster(
    work: str, rates: Mapping[str, float], ours: str, peer: str, unit: str, goal: Goal | None,
    cosines: Mapping[str, float] | None = None,
) -> Iterator[Row]:  # fmt: skip
    """The row of a work that both do so many of a second, if the peer took part."""
    if peer not in rates:
        return

    def cell(name: str) -> Cell | None:
        if name not in rates:
            return None
        near = "" if cosines is None else f", cosine {cosines[name]:.4f}"
        return Cell(f"{rates[name]:,.0f}{unit}{near}", rates[name] / rates[peer])

    said = f"{peer} {rates[peer]:,.0f}{unit}"
    yield Row(work, said, cell(ours), cell(ours + COMPILED), goal)


def _embed(found: dict[str, Any]) -> Iterator[Row]:
    short, mixed = found["captions_per_second"], found["mixed_per_second"]
    peer, near = "sentence-transformers", found["cosine"]
    yield from _faster("embed captions, float32", short, "qkv", peer, "/s", at_least(1.5))
    yield from _faster("embed 8 to 256 tokens, float32", mixed, "qkv", peer, "/s", at_least(1.6))
    yield from _faster(
        "embed captions, int8; peer float32", short, "qkv int8", peer, "/s", at_least(3), near
    )
    yield from _faster("embed captions, int8", short, "qkv int8", "onnxruntime int8", "/s", None)


def _decode(found: dict[str, Any]) -> Iterator[Row]:
    rates, unit = found["tokens_per_second"], " tokens/s"
    yield from _faster("one sequence, float32", rates, "qkv", "transformers", unit, at_least(2.2))
    yield from _faster(
        "one sequence, int8", rates, "qkv int8", "llama.cpp Q8_0", unit, at_least(1.5)
    )


def _batch(found: dict[str, Any]) -> Iterator[Row]:
    """Beside ways of our own the compiled loops stand against the same way with them."""
    rates, work, unit = found["tokens_per_second"], "64 prompts, 8 to 256 tokens each", " tokens/s"
    ours = "qkv, continuous"
    for peer, goal in (("qkv, one by one", 4), ("qkv, static", 2)):
        for row in _faster(work, rates, ours, peer, unit, at_least(goal)):
            if peer + COMPILED in rates:
                compiled, like = rates[ours + COMPILED], rates[peer + COMPILED]
                cell = Cell(f"{compiled:,.0f}{unit}", compiled / like)
                row = row._replace(peer=f"{row.peer}, compiled {like:,.0f}", compiled=cell)
            yield row
    yield from _faster(work, rates, ours, "transformers", unit, at_least(2))


def _translate(found: dict[str, Any]) -> Iterator[Row]:
    for search, field in (("greedy", "beams_1"), ("beam 4", "beams_4")):
        rates = {name: told["tokens_a_second"] for name, told in found[field].items()}
        for kind, ours, peer, goal in (
            ("float32", "qkv", "transformers", 2),
            ("int8", "qkv int8", "ctranslate2 int8", 1.2),
        ):
            work = f"translate, {search}, {kind}"
            yield from _faster(work, rates, ours, peer, " tokens/s", at_least(goal))


def _cold(found: dict[str, Any]) -> Iterator[Row]:
    goal = Goal("≤ 0.4 ×", lambda ratio: ratio <= 0.4)
    for work, seconds in found["seconds"].items():
        ours = Cell(f"{seconds['qkv']:.2f} s", found[f"ratio_{work}"])
        said = f"transformers {seconds['transformers']:.2f} s"
        yield Row(f"first answer, cold: {work}", said, ours, None, goal)


def _memory(found: dict[str, Any]) -> Iterator[Row]:
    before, most = (found[name] / 2**20 for name in ("bytes_after_a_quarter", "most_bytes"))
    work = f"memory over {found['texts']:,} texts"
    ours = Cell(f"{most:,.0f} MB at most", found["growth"])
    flat = Goal("flat", lambda growth: growth < 1.1)
    yield Row(work, f"{before:,.0f} MB after a quarter", ours, None, flat)


READERS = {
    "embed_speed": _embed,
    "translate_speed": _translate,
    "decode_speed": _decode,
    "generate_batch": _batch,
    "cold_start": _cold,
    "embed_memory": _memory,
}
