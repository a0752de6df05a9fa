"""Sentence encoders: what modules.json says of a text's vector, as sentence-transformers has it."""

import json
from pathlib import Path
from typing import Any

from qkv.errors import ConfigError
from qkv.layout.given import Given
from qkv.model import EncoderOnly, First, Last, Max, Mean, TextVector
from qkv.model.family import Config
from qkv.model.pooling import Pooling
from qkv.text.files import read_json, read_text

MODULES, LIMITS, POOLING = "modules.json", "sentence_bert_config.json", "1_Pooling"
MODES: dict[str, Pooling] = {
    "pooling_mode_cls_token": First(),
    "pooling_mode_mean_tokens": Mean(),
    "pooling_mode_max_tokens": Max(),
    "pooling_mode_lasttoken": Last(),
}
NAMES = {"cls": First(), "mean": Mean(), "max": Max(), "lasttoken": Last()}
UNCARRIED = ("pooling_mode_mean_sqrt_len_tokens", "pooling_mode_weightedmean_tokens")


def is_sentence_encoder(place: Path) -> bool:
    return (place / MODULES).is_file()


def as_sentence_encoder(config: Config, place: Path) -> EncoderOnly:
    """The encoder with the pooling, the length and the normalising its modules name."""
    if not isinstance(config, EncoderOnly):
        raise ConfigError(f"{place / MODULES} is for an encoder, but this model is {config.kind}")
    pooling, unit = Mean(), False
    for module in _modules(place):
        kind, folder = _kind(place, module), str(module.get("path", ""))
        if kind == "Pooling":
            pooling = _pooling(place / folder)  # type: ignore[assignment]
        elif kind == "Normalize":
            unit = True
        elif kind != "Transformer":
            raise ConfigError(
                f"{place / MODULES} has a {kind} module, which cannot be carried; "
                f"Transformer, Pooling and Normalize can"
            )
    output = TextVector(pooling=pooling, unit=unit)
    cut = _longest(place, config.length)
    return config.model_copy(update={"output": output, "cut": cut})


def sentence_files(config: EncoderOnly) -> dict[str, Any]:
    """What sentence-transformers needs beside the model: file names to their JSON."""
    output = config.output
    if not isinstance(output, TextVector):
        raise ConfigError("only a model that gives vectors is a sentence encoder")
    mode = next(name for name, pooling in NAMES.items() if pooling == output.pooling)
    kinds = ["Transformer", "Pooling", *(["Normalize"] if output.unit else [])]
    modules = [
        {
            "idx": i,
            "name": str(i),
            "path": "" if i == 0 else f"{i}_{kind}",
            "type": f"sentence_transformers.models.{kind}",
        }
        for i, kind in enumerate(kinds)
    ]
    flags = {name: pooling == output.pooling for name, pooling in MODES.items()}
    return {
        MODULES: modules,
        LIMITS: {"max_seq_length": config.reads, "do_lower_case": False},
        f"{POOLING}/config.json": {
            "word_embedding_dimension": config.encoder.width,
            "pooling_mode": mode,
            **flags,
        },
    }


def _modules(place: Path) -> list[dict[str, Any]]:
    try:
        found = json.loads(read_text(place / MODULES))
    except (ValueError, RecursionError):
        raise ConfigError(f"{place / MODULES} is not JSON") from None
    if not isinstance(found, list) or not all(isinstance(module, dict) for module in found):
        raise ConfigError(f"{place / MODULES} must hold a list of modules")
    return found


def _kind(place: Path, module: dict[str, Any]) -> str:
    folder = module.get("path", "")
    if not isinstance(folder, str) or "/" in folder or folder.startswith("."):
        raise ConfigError(f"{place / MODULES} names {folder!r}, which is no folder of the model")
    return str(module.get("type", "")).rpartition(".")[2]


def _pooling(folder: Path) -> Pooling:
    fields = read_json(folder / "config.json")
    if isinstance(fields.get("pooling_mode"), str):
        pooling: Pooling = Given(fields, str(folder / "config.json")).one_of("pooling_mode", NAMES)
        return pooling
    asked = [name for name in (*MODES, *UNCARRIED) if fields.get(name) is True]
    if len(asked) != 1 or asked[0] not in MODES:
        raise ConfigError(
            f"{folder / 'config.json'} asks for {' and '.join(asked) or 'no pooling'}; one of "
            f"{', '.join(MODES)} is carried"
        )
    return MODES[asked[0]]


def _longest(place: Path, positions: int) -> int | None:
    """How many tokens of a text are read, if fewer than there are positions for."""
    if not (place / LIMITS).is_file():
        return None
    given = Given(read_json(place / LIMITS), str(place / LIMITS))
    if not given.has("max_seq_length"):
        return None
    longest = given.size("max_seq_length")
    return longest if longest < positions else None
