"""Exports a model as a public checkpoint.

Whether a format can represent a model is not predicted but tried: its config.json is generated,
read back, and compared with the original config. A difference is what the format cannot express.
"""

import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from safetensors.torch import save_file
from torch import Tensor

from qkv.checkpoints.config_reader import ConfigReader
from qkv.checkpoints.format import CheckpointFormat, WrongFamilyError
from qkv.checkpoints.load import CONFIG, TOKENIZER_CONFIG
from qkv.checkpoints.registry import FORMATS
from qkv.checkpoints.sentence_transformers import sentence_files
from qkv.checkpoints.tensor_names import resolve
from qkv.errors import ConfigError
from qkv.model import (
    Classify,
    EncoderDecoder,
    EncoderOnly,
    Model,
    ModelConfig,
    TextVector,
    skeleton,
)
from qkv.text import Tokenizer

WEIGHTS = "model.safetensors"


class ExportResult(NamedTuple):
    """The format of the exported checkpoint, and notes for the user."""

    format: CheckpointFormat
    notes: list[str]


class Mismatch(NamedTuple):
    """Why a format cannot represent a model; infinite distance if it could not even be tried."""

    distance: float
    model_type: str
    reason: str


def choose_format(config: ModelConfig, preferred: str | None = None) -> CheckpointFormat:
    """The first format that represents this config exactly, trying `preferred` first."""
    mismatches = []
    # sorted() is stable: the preferred format first, the others in the order of the registry.
    for fmt in sorted(FORMATS, key=lambda fmt: fmt.model_types[0] != preferred):
        model_type = fmt.model_types[0]
        try:
            result = _round_trip(fmt, fmt.hf_config(config), config)
        except WrongFamilyError:
            continue
        except ConfigError as error:
            mismatches.append(Mismatch(math.inf, model_type, str(error)))
            continue
        differences = list(_differences(_comparable(config), _comparable(result)))
        if not differences:
            return fmt
        mismatches.append(Mismatch(len(differences), model_type, differences[0]))
    nearest = min(mismatches, key=lambda mismatch: mismatch.distance)
    if math.isinf(nearest.distance):
        example = f"for example {nearest.model_type}: {nearest.reason}"
    else:
        example = f"nearest is {nearest.model_type}, where {nearest.reason}"
    raise ConfigError(f"no public format can represent this model; {example}")


def public_classification_head(config: ModelConfig, labels: tuple[str, ...]) -> Classify | None:
    """The classification head with which this body can be exported, if there is one."""
    try:
        return choose_format(config).classification_output(config, labels)
    except ConfigError:
        return None


def write_checkpoint(
    model: Model, tokenizer: Tokenizer | None, directory: Path, preferred: str | None = None
) -> ExportResult:
    """Writes config.json, safetensors and tokenizer files into an empty directory."""
    config = model.config
    fmt = choose_format(config, preferred)
    fields = fmt.hf_config(config)
    notes = []
    if tokenizer is not None and tokenizer.has_language_pair:
        notes.append(
            "the tokenizer was not exported, as one tokenizer.json cannot hold separate "
            "tokenizers for source and target: copy source.spm, target.spm and vocab.json from "
            "the original model"
        )
    elif tokenizer is not None:
        token_ids = _write_tokenizer(tokenizer, directory, config)
        if not isinstance(config, EncoderOnly):
            _write_json(directory / "generation_config.json", token_ids)
        _check_pad_id(fields, token_ids)
        fields |= token_ids
    fields["dtype"] = "float32"
    _write_json(directory / CONFIG, fields)
    save_file(_tensors(fmt, model), directory / WEIGHTS, metadata={"format": "pt"})
    if isinstance(config, EncoderOnly) and _is_sentence_encoder(config):
        for name, content in sentence_files(config).items():
            (directory / name).parent.mkdir(exist_ok=True)
            _write_json(directory / name, content)
    if isinstance(config.output, TextVector) and config.output.dense:
        notes.append(
            "text vectors pass through the pooler: transformers returns them as pooler_output, "
            "and qkv import needs --pooler to do the same"
        )
    return ExportResult(fmt, notes)


def _write_tokenizer(tokenizer: Tokenizer, directory: Path, config: ModelConfig) -> dict[str, Any]:
    """Writes tokenizer.json and tokenizer_config.json; returns the token ids for config.json."""
    special_tokens = tokenizer.special_tokens
    seq2seq = isinstance(config, EncoderDecoder)
    max_length = config.context_length if isinstance(config, EncoderOnly) else config.length
    settings: dict[str, Any] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": max_length,
        "pad_token": special_tokens.pad,
        "unk_token": special_tokens.unk,
        "mask_token": special_tokens.mask,
        "bos_token": None if seq2seq else special_tokens.bos,
        "eos_token": special_tokens.eos,
    }
    if special_tokens.mask:  # BERT's names for the tokens around a text
        settings["cls_token"] = special_tokens.bos
        settings["sep_token"] = special_tokens.eos
    settings["chat_template"] = special_tokens.chat_template
    settings = {name: value for name, value in settings.items() if value is not None}
    (directory / "tokenizer.json").write_text(tokenizer.to_json(), encoding="utf-8")
    _write_json(directory / TOKENIZER_CONFIG, settings)

    bos_field = "decoder_start_token_id" if seq2seq else "bos_token_id"
    tokens = {
        "pad_token_id": special_tokens.pad,
        "eos_token_id": special_tokens.eos,
        bos_field: special_tokens.bos,
        "forced_bos_token_id": special_tokens.forced_bos,
    }
    ids: dict[str, Any] = {}
    for name, token in tokens.items():
        if token is not None:
            ids[name] = tokenizer.token_to_id(token)
    if len(tokenizer.eos_ids) > 1:
        ids["eos_token_id"] = list(tokenizer.eos_ids)
    return ids


def _check_pad_id(fields: Mapping[str, Any], token_ids: Mapping[str, Any]) -> None:
    """In RoBERTa the id of the padding token determines the first position."""
    expected = fields.get("pad_token_id")
    pad_id = token_ids.get("pad_token_id")
    if expected is not None and pad_id not in (None, expected):
        raise ConfigError(
            f"{fields['model_type']} counts positions from the id of the padding token, which must "
            f"be {expected}, but the tokenizer's is {pad_id}"
        )


def _tensors(fmt: CheckpointFormat, model: Model) -> dict[str, Tensor]:
    config = model.config
    weights = {name: t.detach().float().cpu() for name, t in model.state_dict().items()}
    # `transformers` saves a body without a head (BertModel) without the prefix.
    prefix = "" if isinstance(config.output, TextVector) else fmt.prefix
    tensors = {}
    for conversion in resolve(fmt.tensor_map(config), weights):
        name = conversion.public
        # str.startswith takes a tuple of prefixes.
        if not name.startswith(fmt.head_prefixes):
            name = prefix + name
        tensors[name] = conversion.to_public(weights).contiguous()
    for copy, original in fmt.duplicates(config).items():
        tensors[copy] = tensors[original].clone()
    return tensors


def _is_sentence_encoder(config: EncoderOnly) -> bool:
    return isinstance(config.output, TextVector) and not config.output.dense


def _round_trip(fmt: CheckpointFormat, fields: dict[str, Any], config: ModelConfig) -> ModelConfig:
    """The config that a checkpoint with this config.json would be loaded with."""
    output = config.output
    pooler = isinstance(output, TextVector) and output.dense
    reader = ConfigReader(fields, fmt.model_types[0], "pooler" if pooler else None)
    result = fmt.read_config(reader, _public_names(fmt, config))
    if not isinstance(config, EncoderOnly):
        return result
    # Stored in other files: tokenizer_config.json, and modules.json of a sentence encoder.
    updates: dict[str, Any] = {"max_length": config.max_length}
    if _is_sentence_encoder(config):
        updates["output"] = output
    return result.model_copy(update=updates)


def _public_names(fmt: CheckpointFormat, config: ModelConfig) -> set[str]:
    """The tensors of this model in the format; empty if it has no tensor for some parameter.

    The missing parameter then shows as a difference between the configs.
    """
    try:
        conversions = resolve(fmt.tensor_map(config), skeleton(config).state_dict())
    except ConfigError:
        return set()
    return {conversion.public for conversion in conversions}


def _comparable(config: ModelConfig) -> dict[str, Any]:
    """The config as plain data, without dropout and with explicit default sizes as None."""
    data: dict[str, Any] = _normalize(config.model_dump())
    return data


def _normalize(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    data = {key: _normalize(item) for key, item in value.items() if key != "dropout"}
    attention = data.get("attention")
    if isinstance(attention, dict) and attention["kind"] == "multi_head":
        heads = attention["heads"]
        for name, default in (("kv_heads", heads), ("head_width", data["width"] // heads)):
            if attention[name] == default:
                attention[name] = None
    return data


def _differences(ours: Any, public: Any, path: str = "") -> Iterator[str]:
    """What the format would make of each setting, and what it should be."""
    if isinstance(ours, Mapping) and isinstance(public, Mapping):
        if ours.get("kind") != public.get("kind"):
            yield f"{path or 'the model'} is {public.get('kind')}, not {ours.get('kind')}"
            return
        for name in dict.fromkeys((*ours, *public)):
            inner = f"{path}.{name}" if path else name
            yield from _differences(ours.get(name), public.get(name), inner)
    elif ours != public:
        yield f"{path} is {_short(public)}, not {_short(ours)}"


def _short(value: Any) -> str:
    if isinstance(value, Mapping):
        return str(value.get("kind", value))
    return str(value)


def _write_json(path: Path, content: Any) -> None:
    path.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
