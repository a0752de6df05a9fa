"""The committed results of the benches of speed as one table: work, peer, ours, ratio, goal."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

RESULTS = Path(__file__).resolve().parents[1] / "bench" / "results"


class Row(NamedTuple):
    work: str
    peer: str
    ours: str
    ratio: float
    goal: str
    reached: bool


def bench_table(results: Path = RESULTS) -> str:
    lines = ["| work | peer | qkv | ratio | goal |", "|---|---|---|---:|---|"]
    for name, read in READERS.items():
        path = results / f"{name}.json"
        if not path.is_file():
            continue
        for row in read(json.loads(path.read_text("utf-8"))):
            mark = row.goal if row.reached else f"{row.goal}, not reached"
            lines.append(f"| {row.work} | {row.peer} | {row.ours} | {row.ratio:.2f} × | {mark} |")
    return "\n".join(lines)


def _at_least(work: str, peer: str, ours: str, ratio: float, goal: float) -> Row:
    return Row(work, peer, ours, ratio, f"≥ {goal} ×", ratio >= goal)


def _embed(found: dict[str, Any]) -> Iterator[Row]:
    short, mixed = found["captions_per_second"], found["mixed_per_second"]
    st = "sentence-transformers"
    peer = f"{st} {short[st]:,.0f}/s"
    yield _at_least(
        "embed captions, float32", peer, f"{short['qkv']:,.0f}/s", found["ratio_captions"], 1.5
    )
    peer_mixed = f"{st} {mixed[st]:,.0f}/s"
    yield _at_least(
        "embed 8 to 256 tokens, float32", peer_mixed, f"{mixed['qkv']:,.0f}/s",
        found["ratio_mixed"], 1.6,
    )  # fmt: skip
    near = f"{short['qkv int8']:,.0f}/s, cosine {found['cosine_int8']:.4f}"
    yield _at_least("embed captions, int8", f"{peer}, float32", near, found["ratio_int8"], 3)
    other = short.get("onnxruntime int8")
    if other:
        ratio = short["qkv int8"] / other
        peer = f"onnxruntime int8 {other:,.0f}/s"
        yield Row("embed captions, int8", peer, f"{short['qkv int8']:,.0f}/s", ratio, "–", True)


def _decode(found: dict[str, Any]) -> Iterator[Row]:
    rates = found["tokens_per_second"]
    yield _at_least(
        "one sequence, float32", f"transformers {rates['transformers']:,.0f} tokens/s",
        f"{rates['qkv']:,.0f} tokens/s", found["ratio_fp32"], 2.2,
    )  # fmt: skip
    if "llama.cpp Q8_0" in rates:
        yield _at_least(
            "one sequence, int8", f"llama.cpp Q8_0 {rates['llama.cpp Q8_0']:,.0f} tokens/s",
            f"{rates['qkv int8']:,.0f} tokens/s", found["ratio_int8"], 1.5,
        )  # fmt: skip


def _batch(found: dict[str, Any]) -> Iterator[Row]:
    rates, work = found["tokens_per_second"], "64 prompts, 8 to 256 tokens each"
    ours = f"{rates['qkv, continuous']:,.0f} tokens/s"
    for peer, ratio, goal in (
        ("qkv, one by one", "ratio_one_by_one", 4),
        ("qkv, static", "ratio_static", 2),
        ("transformers", "ratio_transformers", 2),
    ):
        said = f"{peer} {rates[peer]:,.0f} tokens/s"
        yield _at_least(work, said, ours, found[ratio], goal)


def _translate(found: dict[str, Any]) -> Iterator[Row]:
    for search, field in (("greedy", "beams_1"), ("beam 4", "beams_4")):
        rates = {name: told["tokens_a_second"] for name, told in found[field].items()}
        for ours, peer, goal in (
            ("qkv", "transformers", 2),
            ("qkv int8", "ctranslate2 int8", 1.2),
        ):
            if ours in rates and peer in rates:
                said = f"{peer} {rates[peer]:,.0f} tokens/s"
                kind = "int8" if "int8" in ours else "float32"
                yield _at_least(
                    f"translate, {search}, {kind}", said, f"{rates[ours]:,.0f} tokens/s",
                    rates[ours] / rates[peer], goal,
                )  # fmt: skip


def _cold(found: dict[str, Any]) -> Iterator[Row]:
    for work, seconds in found["seconds"].items():
        ratio = found[f"ratio_{work}"]
        said = f"transformers {seconds['transformers']:.2f} s"
        ours = f"{seconds['qkv']:.2f} s"
        yield Row(f"first answer, cold: {work}", said, ours, ratio, "≤ 0.4 ×", ratio <= 0.4)


def _memory(found: dict[str, Any]) -> Iterator[Row]:
    before, most = (found[name] / 2**20 for name in ("bytes_after_a_quarter", "most_bytes"))
    work = f"memory over {found['texts']:,} texts"
    said = f"{before:,.0f} MB after a quarter"
    yield Row(work, said, f"{most:,.0f} MB at most", found["growth"], "flat", found["growth"] < 1.1)


READERS = {
    "embed_speed": _embed,
    "translate_speed": _translate,
    "decode_speed": _decode,
    "generate_batch": _batch,
    "cold_start": _cold,
    "embed_memory": _memory,
}
