"""Sentence encoders in the format of sentence-transformers: pooling, normalization, length limit.

modules.json lists the modules a text passes through, each with a folder for its own config.json.
Transformer → Pooling, optionally → Normalize is supported.
"""

from pathlib import Path
from typing import Any, NamedTuple

from qkv.checkpoints.config_reader import ConfigReader
from qkv.errors import ConfigError
from qkv.files import check_inside_directory, lexists, read_json, read_json_list
from qkv.model import EncoderOnly, First, Last, Max, Mean, ModelConfig, Pooling, TextVector

MODULES = "modules.json"
LIMITS = "sentence_bert_config.json"
PROMPTS = "config_sentence_transformers.json"
PLAIN_CHAIN = ["Transformer", "Pooling"]
NORMALIZING_CHAIN = ["Transformer", "Pooling", "Normalize"]


class PoolingMode(NamedTuple):
    """One kind of pooling: its name, and its flag in files from before there were names."""

    name: str
    flag: str
    pooling: Pooling


POOLING_MODES = (
    PoolingMode("cls", "pooling_mode_cls_token", First()),
    PoolingMode("mean", "pooling_mode_mean_tokens", Mean()),
    PoolingMode("max", "pooling_mode_max_tokens", Max()),
    PoolingMode("lasttoken", "pooling_mode_lasttoken", Last()),
)


def is_sentence_encoder(directory: Path) -> bool:
    return lexists(directory / MODULES)


def as_sentence_encoder(config: ModelConfig, directory: Path) -> tuple[EncoderOnly, list[str]]:
    """The encoder with the pooling, normalization and length limit of its modules.

    The second result lists settings that were not carried over.
    """
    if not isinstance(config, EncoderOnly):
        raise ConfigError(
            f"{directory / MODULES} needs an encoder, but this model is {config.kind}"
        )
    folders = _module_folders(directory)
    output = TextVector(
        pooling=_read_pooling(check_inside_directory(directory / folders["Pooling"])),
        normalize="Normalize" in folders,
    )
    updates = {"output": output, "max_length": _read_max_length(directory, config.length)}
    return config.model_copy(update=updates), _prompt_notes(directory)


def sentence_files(config: EncoderOnly) -> dict[str, Any]:
    """The files that sentence-transformers needs next to the model: names and JSON contents."""
    output = config.output
    if not isinstance(output, TextVector):
        raise ConfigError(f"a sentence encoder must output text vectors, not {output.kind}")
    mode = next(mode for mode in POOLING_MODES if mode.pooling == output.pooling)
    modules = []
    for i, kind in enumerate(NORMALIZING_CHAIN if output.normalize else PLAIN_CHAIN):
        modules.append(
            {
                "idx": i,
                "name": str(i),
                "path": "" if i == 0 else f"{i}_{kind}",
                "type": f"sentence_transformers.models.{kind}",
            }
        )
    return {
        MODULES: modules,
        LIMITS: {"max_seq_length": config.context_length, "do_lower_case": False},
        "1_Pooling/config.json": {
            "word_embedding_dimension": config.encoder.width,
            "pooling_mode": mode.name,
            **{other.flag: other == mode for other in POOLING_MODES},
        },
    }


def _module_folders(directory: Path) -> dict[str, str]:
    """The folder of each module, by the name of its class."""
    path = directory / MODULES
    modules = read_json_list(path)
    if not all(isinstance(module, dict) for module in modules):
        raise ConfigError(f"{path} must be a list of objects, one per module")
    kinds = [str(module.get("type", "")).rpartition(".")[2] for module in modules]
    folders = [module.get("path", "") for module in modules]
    if kinds not in (PLAIN_CHAIN, NORMALIZING_CHAIN):
        raise ConfigError(
            f"{path} lists {', '.join(kinds) or 'no module'}, which is not supported; supported "
            f"is Transformer, Pooling, optionally followed by Normalize"
        )
    if folders[0] != "":
        raise ConfigError(f"{path} has its encoder in {folders[0]!r}; pass that folder instead")
    for folder in folders:
        # Only direct subfolders: a path from a file must not lead out of the directory.
        if not isinstance(folder, str) or "/" in folder or "\\" in folder or folder[:1] == ".":
            raise ConfigError(f"{path} names {folder!r}, which is not a folder next to it")
    return dict(zip(kinds, folders, strict=True))


def _read_pooling(folder: Path) -> Pooling:
    path = folder / "config.json"
    fields = read_json(path)
    if isinstance(fields.get("pooling_mode"), str):
        choices: dict[str, Pooling] = {mode.name: mode.pooling for mode in POOLING_MODES}
        return ConfigReader(fields, str(path)).one_of("pooling_mode", choices)
    flags = [name for name, value in fields.items() if name.startswith("pooling_mode_") and value]
    for mode in POOLING_MODES:
        if flags == [mode.flag]:
            return mode.pooling
    raise ConfigError(
        f"{path} sets {' and '.join(flags) or 'no pooling'}; expected exactly one of "
        f"{', '.join(mode.flag for mode in POOLING_MODES)}"
    )


def _read_max_length(directory: Path, positions: int) -> int | None:
    """The length limit in tokens, if it is below the number of positions."""
    path = directory / LIMITS
    if not lexists(path):
        return None
    reader = ConfigReader(read_json(path), str(path))
    reader.require(
        "do_lower_case", [False], "lowercases texts before tokenizing and is not supported"
    )
    if not reader.has("max_seq_length"):
        return None
    length = reader.size("max_seq_length")
    return length if length < positions else None


def _prompt_notes(directory: Path) -> list[str]:
    """A note if sentence-transformers would put a prompt before every text."""
    if not lexists(directory / PROMPTS):
        return []
    name = read_json(directory / PROMPTS).get("default_prompt_name")
    if name is None:
        return []
    return [f"the prompt {name!r} before every text; add it to your texts yourself"]
