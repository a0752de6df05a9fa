"""Exports a model as a public checkpoint.

Whether a format can represent a model is not predicted but tried: its config.json is generated,
read back, and compared with the original config. A difference is what the format cannot express.
A model that no format has as it is may have an equivalent that one has: see `rewrite.py`.
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
from qkv.checkpoints.rewrite import Rewrite, rewrites
from qkv.checkpoints.sentence_transformers import sentence_files
from qkv.checkpoints.state_dict import largest_difference
from qkv.checkpoints.tensor_names import resolve
from qkv.errors import ConfigError
from qkv.gguf import write_gguf
from qkv.model import (
    Classify,
    DecoderOnly,
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
    """The format of the exported checkpoint, its model_type, and notes for the user."""

    format: CheckpointFormat
    model_type: str
    notes: list[str]


class FormatChoice(NamedTuple):
    """A format, and the form in which it holds the model."""

    format: CheckpointFormat
    rewrite: Rewrite


class Mismatch(NamedTuple):
    """Why a format cannot represent a model; infinite distance if it could not even be tried."""

    distance: float
    model_type: str
    reason: str


def choose_format(config: ModelConfig, preferred: str | None = None) -> FormatChoice:
    """The first format that represents this config exactly, trying `preferred` first.

    A config that none represents as it is is tried in each of its equivalent forms.
    """
    mismatches: list[Mismatch] = []
    for rewrite in rewrites(config):
        # sorted() is stable: the preferred format first, the others in the order of the registry.
        for fmt in sorted(FORMATS, key=lambda fmt: fmt.model_types[0] != preferred):
            try:
                mismatch = _mismatch(fmt, rewrite.config)
            except WrongFamilyError:
                continue
            if mismatch is None:
                return FormatChoice(fmt, rewrite)
            mismatches.append(mismatch)
    nearest = min(mismatches, key=lambda mismatch: mismatch.distance)
    if math.isinf(nearest.distance):
        example = f"for example {nearest.model_type}: {nearest.reason}"
    else:
        example = f"nearest is {nearest.model_type}, where {nearest.reason}"
    raise ConfigError(f"no public format can represent this model; {example}")


def _mismatch(fmt: CheckpointFormat, config: ModelConfig) -> Mismatch | None:
    """Why a format cannot represent a config; None if it can."""
    model_type = fmt.model_types[0]
    try:
        fields = fmt.hf_config(config)
        model_type = fields["model_type"]
        result = _round_trip(fmt, fields, config)
    except WrongFamilyError:
        raise
    except ConfigError as error:
        return Mismatch(math.inf, model_type, str(error))
    differences = list(_differences(_comparable(config), _comparable(result)))
    if not differences:
        return None
    return Mismatch(len(differences), model_type, differences[0])


def public_classification_head(config: ModelConfig, labels: tuple[str, ...]) -> Classify | None:
    """The classification head with which this body can be exported, if there is one."""
    try:
        return choose_format(config).format.classification_output(config, labels)
    except ConfigError:
        return None


def write_checkpoint(
    model: Model, tokenizer: Tokenizer | None, directory: Path, preferred: str | None = None
) -> ExportResult:
    """Writes config.json, safetensors and tokenizer files into an empty directory."""
    fmt, model, notes = _fit_to_format(model, preferred)
    config = model.config
    fields = fmt.hf_config(config)
    if tokenizer is not None and tokenizer.has_language_pair:
        notes.append(
            "the tokenizer was not exported, as one tokenizer.json cannot hold separate "
            "tokenizers for source and target: copy source.spm, target.spm and vocab.json from "
            "the original model"
        )
    elif tokenizer is not None:
        token_ids = _write_tokenizer(tokenizer, directory, config)
        if not isinstance(config, EncoderOnly):
            generation = token_ids | _generation_fields(tokenizer, config)
            _write_json(directory / "generation_config.json", generation)
        _check_pad_id(fields, token_ids)
        fields = fmt.with_token_ids(fields, token_ids)
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
    return ExportResult(fmt, fields["model_type"], notes)


def write_gguf_file(
    model: Model,
    tokenizer: Tokenizer | None,
    path: Path,
    weight_type: str = "f32",
    name: str = "model",
) -> ExportResult:
    """Writes a decoder with its tokenizer as one file for llama.cpp; `name` is for people."""
    if not isinstance(model.config, DecoderOnly):
        raise ConfigError(
            f"a GGUF file holds a decoder, but this model is {_family(model.config)}; export it "
            f"to=hf"
        )
    if tokenizer is None:
        raise ConfigError("a GGUF file holds a tokenizer, but this model has none; export it to=hf")
    fmt, model, notes = _fit_to_format(model, "llama")
    fields = fmt.hf_config(model.config)
    notes += write_gguf(path, fields, _tensors(fmt, model), tokenizer, weight_type, name)
    return ExportResult(fmt, fields["model_type"], notes)


def _family(config: ModelConfig) -> str:
    if isinstance(config, EncoderDecoder):
        return "an encoder–decoder"
    return "an encoder"


def _fit_to_format(
    model: Model, preferred: str | None
) -> tuple[CheckpointFormat, Model, list[str]]:
    """A format for the model, the model as the format holds it, and notes for the user."""
    fmt, rewrite = choose_format(model.config, preferred)
    if rewrite.description is None:
        return fmt, model, []
    rewritten = rewrite.apply(model)
    difference = largest_difference(model, rewritten)
    note = f"{rewrite.description}; outputs differ by at most {difference:.0e}"
    return fmt, rewritten, [note]


def _generation_fields(
    tokenizer: Tokenizer, config: DecoderOnly | EncoderDecoder
) -> dict[str, Any]:
    """Settings of `generate` in transformers that follow from the model."""
    fields: dict[str, Any] = {"max_length": config.length}
    if isinstance(config, EncoderDecoder):
        fields["suppress_tokens"] = tokenizer.non_target_ids(config.embedding.vocabulary)
    return fields


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
    if not isinstance(config, EncoderOnly) or not config.embedding.token_types:
        settings["model_input_names"] = ["input_ids", "attention_mask"]
    # A source that our tokenizer leaves open is closed by our translator; others need a template.
    is_open = not tokenizer.adds_special_tokens and not special_tokens.omit_source_eos
    content = tokenizer.to_json(add_eos=seq2seq and is_open)
    (directory / "tokenizer.json").write_text(content, encoding="utf-8")
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
    tensors.update(fmt.constant_tensors(config))
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
