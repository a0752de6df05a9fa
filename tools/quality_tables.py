"""The committed results of the other benches as tables: how good, how large, on which machine."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench_table import RESULTS

Found = dict[str, Any]
# What results were measured on that do not name their processor.
EARLIER = "Intel(R) Xeon(R) Processor @ 2.80GHz"


def quality_table(results: Path = RESULTS) -> str:
    """What was learnt, beside what a simple way or a peer gives for the same data."""
    lines = ["| task | beside it | qkv | took |", "|---|---|---|---:|"]
    for name, read in QUALITY.items():
        lines += [f"| {' | '.join(row)} |" for row in _read(results, name, read)]
    return "\n".join(lines)


def resource_table(results: Path = RESULTS) -> str:
    """Memory and time that are no answers a second, beside a peer's where one was measured."""
    lines = ["| what | beside it | qkv |", "|---|---|---|"]
    for name, read in RESOURCES.items():
        lines += [f"| {' | '.join(row)} |" for row in _read(results, name, read)]
    return "\n".join(lines)


def machine_line(results: Path = RESULTS) -> str:
    """Processors, threads, matrix speed and versions, gathered from every result."""
    speeds, threads = dict[str, set[float]](), set[int]()
    versions = dict[str, set[str]]()
    for path in sorted(results.rglob("*.json")):
        found = json.loads(path.read_text("utf-8"))
        if "matrix_gflops" in found:
            speeds.setdefault(found.get("cpu", EARLIER), set()).add(found["matrix_gflops"])
            threads.add(found["threads"])
        peers = {n: found[n] for n in ("transformers", "ctranslate2") if n in found}
        told = {n: found[n] for n in ("torch", "python") if n in found}
        for name, version in {**found.get("versions", {}), **peers, **told}.items():
            versions.setdefault(name, set()).add(version)
    said = ", ".join(f"{name} {' and '.join(sorted(v))}" for name, v in sorted(versions.items()))
    fast = "; ".join(
        f"{min(each):g} to {max(each):g} GFLOP/s on the {cpu}" for cpu, each in speeds.items()
    )
    return (
        f"Threads: {', '.join(map(str, sorted(threads)))}. Matrix products in float32, measured in "
        f"each run: {fast}. Versions: {said}."
    )


def _read(results: Path, name: str, read: Any) -> Iterator[tuple[str, ...]]:
    path = results / f"{name}.json"
    if path.is_file():
        yield from read(json.loads(path.read_text("utf-8")))


def _minutes(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"


def _fine_tuned(found: Found) -> Iterator[tuple[str, ...]]:
    names = {"sst2": "SST-2", "trec": "TREC", "banking77": "banking77",
             "few": "banking77, eight examples a label"}  # fmt: skip
    for key, row in found["rows"].items():
        then = row["then"]
        if "accuracy" in then:
            yield (
                f"{names[key]}: MiniLM fine-tuned, accuracy on the test part",
                f"TF-IDF and logistic regression {100 * then['bag_of_words']:.1f} %",
                f"{100 * then['accuracy']:.1f} %",
                _minutes(row["seconds"]),
            )
        else:
            yield (
                "STS-B: MiniLM fine-tuned, rank correlation on the test part",
                f"MiniLM as published {then['untouched']:.3f}",
                f"{then['spearman']:.3f}",
                _minutes(row["seconds"]),
            )


def _characters(found: Found) -> Iterator[tuple[str, ...]]:
    beside = found["reference"]
    peer = (
        f"nanoGPT's recipe for a CPU {beside['held_out_loss']} after {beside['seconds_of_steps']} s"
    )
    for key in ("short", "whole", "three_minutes"):
        row = found[key]
        loss, size = row["held_out"]["loss_per_character"], row["parameters"] / 1e6
        task = f"Shakespeare's letters, {size:.1f} M parameters: nats a letter, lower is better"
        yield task, peer, f"{loss:.3f}", f"{row['seconds_of_steps']:.0f} s"


def _translated(found: Found) -> Iterator[tuple[str, ...]]:
    size = found["parameters"] / 1e6
    task = (
        f"Multi30k English to German, {size:.1f} M parameters from nothing, `--minutes "
        f"{found['minutes']:g}`: BLEU on test 2016"
    )
    yield task, "–", f"{found['then']['bleu']:.1f}", _minutes(found["seconds"])


def _labelled(found: Found) -> Iterator[tuple[str, ...]]:
    seconds = sum(row["taught"]["seconds"] for row in found["runs"]) / len(found["runs"])
    yield (
        "SST-2 from nothing but its 6,920 sentences, accuracy on the test part, mean of three",
        f"TF-IDF and logistic regression {100 * found['bag_of_words']:.1f} %",
        f"{100 * found['taught']:.1f} %",
        _minutes(seconds),
    )


def _clustered(found: Found) -> Iterator[tuple[str, ...]]:
    rows = found["stackoverflow"]
    ours, peer = rows["MiniLM, k=20"], rows["MiniLM, scikit-learn's k-means"]
    names = {"v_measure": "V-measure", "adjusted_rand": "adjusted Rand index"}
    for metric, name in names.items():
        yield (
            f"20,000 Stack Overflow titles in 20 clusters, MiniLM's vectors: {name}",
            f"scikit-learn's k-means {peer[metric]:.3f} in {peer['seconds']} s",
            f"{ours[metric]:.3f}",
            f"{ours['seconds']} s",
        )


def _loading(found: Found) -> Iterator[tuple[str, ...]]:
    seconds, memory = found["seconds"], found["memory_over_weights"]
    yield (
        f"{found['model']} from disk to a first answer, fresh process",
        f"transformers {seconds['transformers']:.2f} s",
        f"{seconds['qkv']:.2f} s",
    )
    yield (
        f"{found['model']}: memory, in sizes of the weights",
        f"transformers {memory['transformers']:.1f}",
        f"{memory['qkv']:.1f}",
    )


def _training(found: Found) -> Iterator[tuple[str, ...]]:
    others = [n for n in found if isinstance(found[n], dict) and not n.startswith("qkv")]
    said = [f"{n} {found[n]['tokens_a_second']:,} tokens/s" for n in others]
    for name in ("qkv", "qkv --compile"):
        rate, share = found[name]["tokens_a_second"], 100 * found[name]["share"]
        yield (
            f"training step of a GPT of 10.6 M parameters{name.removeprefix('qkv')}",
            ", ".join(said) or "–",
            f"{rate:,} tokens/s, {share:.0f} % of the matrix speed",
        )


def _loss(found: Found) -> Iterator[tuple[str, ...]]:
    ours, torch = (found["measured"][name] for name in ("ours", "torch"))
    yield (
        "loss over 32,000 tokens of vocabulary, 8,192 positions: memory",
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
