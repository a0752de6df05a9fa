"""The committed results of the other benchmarks as tables: quality, resources, the machine."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench_table import RESULTS

Result = dict[str, Any]
# The CPU of results that do not name theirs.
UNNAMED_CPU = "Intel(R) Xeon(R) Processor @ 2.80GHz"


def quality_table(results: Path = RESULTS) -> str:
    """Quality after training, next to a baseline or a peer on the same data."""
    lines = ["| task | baseline or peer | qkv | time |", "|---|---|---|---:|"]
    for name, read in QUALITY.items():
        lines += [f"| {' | '.join(row)} |" for row in _read(results, name, read)]
    return "\n".join(lines)


def resource_table(results: Path = RESULTS) -> str:
    """Memory, latency and training speed, next to a peer's where one was measured."""
    lines = ["| what | peer | qkv |", "|---|---|---|"]
    for name, read in RESOURCES.items():
        lines += [f"| {' | '.join(row)} |" for row in _read(results, name, read)]
    return "\n".join(lines)


def machine_line(results: Path = RESULTS) -> str:
    """Processors, threads, GEMM speed and versions, collected from every result."""
    speeds = dict[str, set[float]]()
    threads = set[int]()
    versions = dict[str, set[str]]()
    for path in sorted(results.rglob("*.json")):
        result = json.loads(path.read_text("utf-8"))
        if "matrix_gflops" in result:
            speeds.setdefault(result.get("cpu", UNNAMED_CPU), set()).add(result["matrix_gflops"])
            threads.add(result["threads"])
        peers = {n: result[n] for n in ("transformers", "ctranslate2") if n in result}
        runtime = {n: result[n] for n in ("torch", "python") if n in result}
        for name, version in {**result.get("versions", {}), **peers, **runtime}.items():
            versions.setdefault(name, set()).add(version)
    version_list = ", ".join(
        f"{name} {' and '.join(sorted(v))}" for name, v in sorted(versions.items())
    )
    speed_list = "; ".join(
        f"{min(each):g} to {max(each):g} GFLOP/s on the {cpu}" for cpu, each in speeds.items()
    )
    return (
        f"Threads: {', '.join(map(str, sorted(threads)))}. GEMM speed in float32, measured in "
        f"each run: {speed_list}. Versions: {version_list}."
    )


def _read(results: Path, name: str, read: Any) -> Iterator[tuple[str, ...]]:
    path = results / f"{name}.json"
    if path.is_file():
        yield from read(json.loads(path.read_text("utf-8")))


def _minutes(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"


def _fine_tuned(result: Result) -> Iterator[tuple[str, ...]]:
    names = {"sst2": "SST-2", "trec": "TREC", "banking77": "banking77",
             "few": "banking77, eight examples per label"}  # fmt: skip
    for key, row in result["rows"].items():
        then = row["then"]
        if "accuracy" in then:
            yield (
                f"{names[key]}: MiniLM fine-tuned, test accuracy",
                f"TF-IDF and logistic regression {100 * then['bag_of_words']:.1f} %",
                f"{100 * then['accuracy']:.1f} %",
                _minutes(row["seconds"]),
            )
        else:
            yield (
                "STS-B: MiniLM fine-tuned, test rank correlation",
                f"MiniLM as published {then['untouched']:.3f}",
                f"{then['spearman']:.3f}",
                _minutes(row["seconds"]),
            )


def _characters(result: Result) -> Iterator[tuple[str, ...]]:
    reference = result["reference"]
    peer = (
        f"nanoGPT's CPU recipe {reference['held_out_loss']} after {reference['seconds_of_steps']} s"
    )
    for key in ("short", "whole", "three_minutes"):
        row = result[key]
        loss = row["held_out"]["loss_per_character"]
        size = row["parameters"] / 1e6
        task = f"Shakespeare's letters, {size:.1f} M parameters: nats per letter, lower is better"
        yield task, peer, f"{loss:.3f}", f"{row['seconds_of_steps']:.0f} s"


def _translated(result: Result) -> Iterator[tuple[str, ...]]:
    size = result["parameters"] / 1e6
    task = (
        f"Multi30k English to German, {size:.1f} M parameters from scratch, `--minutes "
        f"{result['minutes']:g}`: BLEU on test 2016"
    )
    yield task, "–", f"{result['then']['bleu']:.1f}", _minutes(result["seconds"])


def _labelled(result: Result) -> Iterator[tuple[str, ...]]:
    seconds = sum(row["taught"]["seconds"] for row in result["runs"]) / len(result["runs"])
    yield (
        "SST-2 from scratch, 6,920 sentences, test accuracy, mean of three",
        f"TF-IDF and logistic regression {100 * result['bag_of_words']:.1f} %",
        f"{100 * result['taught']:.1f} %",
        _minutes(seconds),
    )


def _clustered(result: Result) -> Iterator[tuple[str, ...]]:
    rows = result["stackoverflow"]
    ours = rows["MiniLM, k=20"]
    peer = rows["MiniLM, scikit-learn's k-means"]
    names = {"v_measure": "V-measure", "adjusted_rand": "adjusted Rand index"}
    for metric, name in names.items():
        yield (
            f"20,000 Stack Overflow titles in 20 clusters, MiniLM embeddings: {name}",
            f"scikit-learn's k-means {peer[metric]:.3f} in {peer['seconds']} s",
            f"{ours[metric]:.3f}",
            f"{ours['seconds']} s",
        )


def _loading(result: Result) -> Iterator[tuple[str, ...]]:
    seconds = result["seconds"]
    memory = result["memory_over_weights"]
    yield (
        f"{result['model']} from disk to a first answer, fresh process",
        f"transformers {seconds['transformers']:.2f} s",
        f"{seconds['qkv']:.2f} s",
    )
    yield (
        f"{result['model']}: memory, in multiples of the weights",
        f"transformers {memory['transformers']:.1f}",
        f"{memory['qkv']:.1f}",
    )


def _training(result: Result) -> Iterator[tuple[str, ...]]:
    others = [n for n in result if isinstance(result[n], dict) and not n.startswith("qkv")]
    peers = [f"{n} {result[n]['tokens_a_second']:,} tokens/s" for n in others]
    for name in ("qkv", "qkv --compile"):
        rate = result[name]["tokens_a_second"]
        percent = 100 * result[name]["share"]
        yield (
            f"training step of a GPT of 10.6 M parameters{name.removeprefix('qkv')}",
            ", ".join(peers) or "–",
            f"{rate:,} tokens/s, {percent:.0f} % of the GEMM speed",
        )


def _loss(result: Result) -> Iterator[tuple[str, ...]]:
    ours, torch = (result["measured"][name] for name in ("ours", "torch"))
    yield (
        "cross-entropy over a vocabulary of 32,000, 8,192 positions: memory",
        f"torch's cross-entropy {torch['bytes'] / 2**20:,.0f} MB",
        f"{ours['bytes'] / 2**20:,.0f} MB",
    )


QUALITY = {
    "finetune_minilm": _fine_tuned,
    "finetune_minilm_few": _fine_tuned,
    "language_characters": _characters,
    "translate_multi30k_20": _translated,
    "translate_multi30k_60": _translated,
    "classify_sst2": _labelled,
    "cluster_speed": _clustered,
}
RESOURCES = {"load_checkpoint": _loading, "training_speed": _training, "loss_memory": _loss}
