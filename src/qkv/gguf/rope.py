"""How positions were stretched to read longer texts, as Hugging Face writes it.

Linear and YaRN stretching are written as they are. Llama 3's is not: its file holds only what
each frequency is divided by, in rope_freqs.weight. The published numbers of Llama 3.1 to 3.3 are
tried, and taken if they give exactly these divisors.
"""

import math
from typing import Any

import torch
from torch import Tensor

from qkv.errors import BundleError
from qkv.files import shown
from qkv.gguf.facts import Facts
from qkv.gguf.file import File

DIVISORS = "rope_freqs.weight"
KNOWN = ("none", "linear", "yarn")
SAID = ("type", "factor", "original_context_length", "finetuned")
LOW, HIGH, BEFORE = 1.0, 4.0, 8192  # what Llama 3.1, 3.2 and 3.3 were published with


def rope_scaling(
    file: File, facts: Facts, name: str, head: int, theta: float
) -> dict[str, Any] | None:
    """`rope_scaling` of config.json: none when positions are read as they are."""
    scaling = f"{name}.rope.scaling"
    old = facts.number(f"{name}.rope.scale_linear", 1.0)
    factor = facts.number(f"{scaling}.factor", old)
    kind = facts.text(f"{scaling}.type", "none" if factor == 1 else "linear")
    if kind not in KNOWN:
        raise BundleError(
            f"{file.path} stretches positions by {shown(kind)}; read are {', '.join(KNOWN)} and "
            "the divisors of Llama 3"
        )
    if kind != "none":
        _check_alone(file, facts, scaling)
    if kind == "linear":
        return {"rope_type": "linear", "factor": factor}
    if kind == "yarn":
        return {
            "rope_type": "yarn",
            "factor": factor,
            "original_max_position_embeddings": facts.whole(f"{scaling}.original_context_length"),
        }
    return _llama3(file, head, theta) if DIVISORS in file.names else None


def _check_alone(file: File, facts: Facts, scaling: str) -> None:
    """Refuse to leave out what would change the stretching."""
    said = {f"{scaling}.{key}" for key in SAID}
    beside = [key for key in facts if key.startswith(f"{scaling}.") and key not in said]
    beside += [name for name in file.names if name == DIVISORS]
    if beside:
        raise BundleError(
            f"{file.path} stretches positions with {shown(beside[0])}; read are "
            f"{', '.join(SAID)} of {scaling}"
        )


def _llama3(file: File, head: int, theta: float) -> dict[str, Any] | None:
    if file.shape(DIVISORS) != (head // 2,):
        raise BundleError(
            f"{file.path}: {DIVISORS} has shape {file.shape(DIVISORS)}; expected ({head // 2},)"
        )
    found = file.read(DIVISORS)
    factor = float(found.max())
    if bool((found == 1).all()):
        return None
    expected = llama3_divisors(head, theta, factor)
    if math.isinf(factor) or not torch.allclose(found, expected, rtol=1e-5, atol=0):
        raise BundleError(
            f"{file.path}: {DIVISORS} divides the frequencies in a way that Llama 3 with factor "
            f"{factor:g}, {LOW:g} to {HIGH:g} turns in {BEFORE} tokens does not; it is not read"
        )
    return {
        "rope_type": "llama3",
        "factor": factor,
        "low_freq_factor": LOW,
        "high_freq_factor": HIGH,
        "original_max_position_embeddings": BEFORE,
    }


def llama3_divisors(head: int, theta: float, factor: float) -> Tensor:
    """What each of head/2 frequencies is divided by: 1 for the fast, `factor` for the slow."""
    frequencies = theta ** -(torch.arange(0, head, 2, dtype=torch.float64) / head)
    turns = BEFORE * frequencies / (2 * math.pi)
    smooth = ((turns - LOW) / (HIGH - LOW)).clamp(0, 1)
    return (1 / ((1 - smooth) / factor + smooth)).float()
