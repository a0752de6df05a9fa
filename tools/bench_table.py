"""The committed results of the speed benchmarks as one table: work, peer, ours, goal."""

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

RESULTS = Path(__file__).resolve().parents[1] / "bench" / "results"
COMPILED = " --compile"


class Goal(NamedTuple):
    """How our figure should compare with the peer's."""

    text: str
    holds: Callable[[float], bool]


class Cell(NamedTuple):
    """Our figure, and its ratio to the peer's."""

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
        goal = "–"
        if self.goal is not None:
            goal = self.goal.text
            if not any(self.goal.holds(cell.ratio) for cell in cells):
                goal += ", not reached"
        plain, compiled = ("–" if cell is None else cell for cell in (self.plain, self.compiled))
        return f"| {self.work} | {self.peer} | {plain} | {compiled} | {goal} |"


def bench_table(folder: str = "") -> str:
    """The results in that folder; other machines have folders of their own."""
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
    """The row that compares two rates, if the peer was measured."""
    if peer not in rates:
        return

    def cell(name: str) -> Cell | None:
        if name not in rates:
            return None
        cosine = "" if cosines is None else f", cosine {cosines[name]:.4f}"
        return Cell(f"{rates[name]:,.0f}{unit}{cosine}", rates[name] / rates[peer])

    yield Row(work, f"{peer} {rates[peer]:,.0f}{unit}", cell(ours), cell(ours + COMPILED), goal)


def _embed(result: dict[str, Any]) -> Iterator[Row]:
    short = result["captions_per_second"]
    mixed = result["mixed_per_second"]
    cosines = result["cosine"]
    peer = "sentence-transformers"
    yield from _faster("embed captions, float32", short, "qkv", peer, "/s", at_least(1.5))
    yield from _faster("embed 8 to 256 tokens, float32", mixed, "qkv", peer, "/s", at_least(1.6))
    yield from _faster(
        "embed captions, int8; peer float32", short, "qkv int8", peer, "/s", at_least(3), cosines
    )
    yield from _faster("embed captions, int8", short, "qkv int8", "onnxruntime int8", "/s", None)


def _decode(result: dict[str, Any]) -> Iterator[Row]:
    rates = result["tokens_per_second"]
    unit = " tokens/s"
    yield from _faster("one sequence, float32", rates, "qkv", "transformers", unit, at_least(2.2))
    yield from _faster(
        "one sequence, int8", rates, "qkv int8", "llama.cpp Q8_0", unit, at_least(1.5)
    )


def _batch(result: dict[str, Any]) -> Iterator[Row]:
    """Compared with our own modes, compiled kernels are compared with compiled kernels."""
    rates = result["tokens_per_second"]
    work = "64 prompts, 8 to 256 tokens each"
    unit = " tokens/s"
    ours = "qkv, continuous"
    for peer, goal in (("qkv, one by one", 4), ("qkv, static", 2)):
        for row in _faster(work, rates, ours, peer, unit, at_least(goal)):
            if peer + COMPILED in rates:
                ours_compiled = rates[ours + COMPILED]
                peer_compiled = rates[peer + COMPILED]
                cell = Cell(f"{ours_compiled:,.0f}{unit}", ours_compiled / peer_compiled)
                text = f"{row.peer}, compiled {peer_compiled:,.0f}"
                row = row._replace(peer=text, compiled=cell)
            yield row
    yield from _faster(work, rates, ours, "transformers", unit, at_least(2))


def _translate(result: dict[str, Any]) -> Iterator[Row]:
    for search, field in (("greedy", "beams_1"), ("beam 4", "beams_4")):
        rates = {name: row["tokens_a_second"] for name, row in result[field].items()}
        for kind, ours, peer, goal in (
            ("float32", "qkv", "transformers", 2),
            ("int8", "qkv int8", "ctranslate2 int8", 1.2),
        ):
            work = f"translate, {search}, {kind}"
            yield from _faster(work, rates, ours, peer, " tokens/s", at_least(goal))


def _cold(result: dict[str, Any]) -> Iterator[Row]:
    goal = Goal("≤ 0.4 ×", lambda ratio: ratio <= 0.4)
    for work, seconds in result["seconds"].items():
        ours = Cell(f"{seconds['qkv']:.2f} s", result[f"ratio_{work}"])
        peer = f"transformers {seconds['transformers']:.2f} s"
        yield Row(f"first answer, cold: {work}", peer, ours, None, goal)


def _memory(result: dict[str, Any]) -> Iterator[Row]:
    quarter = result["bytes_after_a_quarter"] / 2**20
    peak = result["most_bytes"] / 2**20
    work = f"memory over {result['texts']:,} texts"
    ours = Cell(f"{peak:,.0f} MB at most", result["growth"])
    flat = Goal("flat", lambda growth: growth < 1.1)
    yield Row(work, f"{quarter:,.0f} MB after a quarter", ours, None, flat)


READERS = {
    "embed_speed": _embed,
    "translate_speed": _translate,
    "decode_speed": _decode,
    "generate_batch": _batch,
    "cold_start": _cold,
    "embed_memory": _memory,
}


def busy_table() -> str:
    """Work per second next to busy processes, as fractions of the best fixed number of threads."""
    result = json.loads((RESULTS / "busy_neighbour.json").read_text("utf-8"))
    lines = [
        "| job | busy processes | 1 thread | 2 threads | default |",
        "|---|---:|---:|---:|---:|",
    ]
    for row in result["rows"]:
        speeds = row["speeds"]
        best = max(speeds["1"], speeds["2"])
        cells = [f"{speeds[setting] / best:.2f}" for setting in ("1", "2", "default")]
        lines.append(f"| {row['job']} | {row['neighbours']} | {' | '.join(cells)} |")
    lines.append("")
    lines.append(f"{result['cpu']}, two cores, models of about a million parameters.")
    return "\n".join(lines)
