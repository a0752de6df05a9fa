"""Sentence encoders: what modules.json says of a text's vector, as sentence-transformers has it."""

from pathlib import Path
from typing import Any, NamedTuple

from qkv.checkpoints.format import Given
from qkv.errors import ConfigError
from qkv.files import check_inside_directory, lexists, read_json, read_json_list
from qkv.model import EncoderOnly, First, Last, Max, Mean, TextVector
from qkv.model.build import ModelConfig
from qkv.model.output import Pooling

MODULES = "modules.json"
LIMITS = "sentence_bert_config.json"
PROMPTS = "config_sentence_transformers.json"
CHAINS = (["Transformer", "Pooling"], ["Transformer", "Pooling", "Normalize"])


class Way(NamedTuple):
    """One way to pool, by its name and by its flag in older files."""

    name: str
    flag: str
    pooling: Pooling


WAYS = (
    Way("cls", "pooling_mode_cls_token", First()),
    Way("mean", "pooling_mode_mean_tokens", Mean()),
    Way("max", "pooling_mode_max_tokens", Max()),
    Way("lasttoken", "pooling_mode_lasttoken", Last()),
)


def is_sentence_encoder(place: Path) -> bool:
    return lexists(place / MODULES)


def as_sentence_encoder(config: ModelConfig, place: Path) -> tuple[EncoderOnly, list[str]]:
    """The encoder with the pooling, the length and the normalising its modules name; and what of
    them could not be carried.
    """
    if not isinstance(config, EncoderOnly):
        raise ConfigError(f"{place / MODULES} is for an encoder, but this model is {config.kind}")
    folders = _modules(place)
    output = TextVector(
        pooling=_pooling(check_inside_directory(place / folders["Pooling"])),
        normalize="Normalize" in folders,
    )
    changes = {"output": output, "max_length": _longest(place, config.length)}
    return config.model_copy(update=changes), _prompts(place)


def sentence_files(config: EncoderOnly) -> dict[str, Any]:
    """What sentence-transformers needs beside the model: file names to their JSON."""
    output = config.output
    if not isinstance(output, TextVector):
        raise ConfigError("only a model that gives vectors is a sentence encoder")
    way = next(way for way in WAYS if way.pooling == output.pooling)
    modules = [
        {
            "idx": i,
            "name": str(i),
            "path": "" if i == 0 else f"{i}_{kind}",
            "type": f"sentence_transformers.models.{kind}",
        }
        for i, kind in enumerate(CHAINS[output.normalize])
    ]
    return {
        MODULES: modules,
        LIMITS: {"max_seq_length": config.context_length, "do_lower_case": False},
        "1_Pooling/config.json": {
            "word_embedding_dimension": config.encoder.width,
            "pooling_mode": way.name,
            **{other.flag: other == way for other in WAYS},
        },
    }


def _modules(place: Path) -> dict[str, str]:
    """The folder of each module; only the chains that are carried are let through."""
    found = read_json_list(place / MODULES)
    if not all(isinstance(module, dict) for module in found):
        raise ConfigError(f"{place / MODULES} must hold a list of modules")
    kinds = [str(module.get("type", "")).rpartition(".")[2] for module in found]
    folders = [module.get("path", "") for module in found]
    if kinds not in CHAINS:
        raise ConfigError(
            f"{place / MODULES} names {', '.join(kinds) or 'no module'}, which cannot be carried; "
            f"Transformer and Pooling can, with or without Normalize"
        )
    if folders[0] != "":
        raise ConfigError(
            f"{place / MODULES} keeps its encoder in {folders[0]!r}; give that folder"
        )
    for folder in folders:
        if not isinstance(folder, str) or "/" in folder or "\\" in folder or folder[:1] == ".":
            raise ConfigError(f"{place / MODULES} names {folder!r}, which is no folder of it")
    return dict(zip(kinds, folders, strict=True))


def _pooling(folder: Path) -> Pooling:
    fields = read_json(folder / "config.json")
    if isinstance(fields.get("pooling_mode"), str):
        names: dict[str, Pooling] = {way.name: way.pooling for way in WAYS}
        return Given(fields, str(folder / "config.json")).one_of("pooling_mode", names)
    asked = [n for n, value in fields.items() if n.startswith("pooling_mode_") and value]
    found = [way.pooling for way in WAYS if asked == [way.flag]]
    if not found:
        raise ConfigError(
            f"{folder / 'config.json'} asks for {' and '.join(asked) or 'no pooling'}; one of "
            f"{', '.join(way.flag for way in WAYS)} is carried"
        )
    return found[0]


def _longest(place: Path, positions: int) -> int | None:
    """How many tokens of a text are read, if fewer than there are positions for."""
    if not lexists(place / LIMITS):
        return None
    given = Given(read_json(place / LIMITS), str(place / LIMITS))
    given.must_be("do_lower_case", [False], "would change texts before they are cut into tokens")
    if not given.has("max_seq_length"):
        return None
    longest = given.size("max_seq_length")
    if longest < positions:
        return longest
    return None


def _prompts(place: Path) -> list[str]:
    """Words that sentence-transformers would put before a text."""
    if not lexists(place / PROMPTS):
        return []
    name = read_json(place / PROMPTS).get("default_prompt_name")
    if name is None:
        return []
    return [f"the prompt {name!r} before every text; write it yourself"]
