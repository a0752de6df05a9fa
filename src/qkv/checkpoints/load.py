"""Loads public checkpoints: Hugging Face directories and GGUF files of llama.cpp."""

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from qkv.checkpoints.config_reader import ConfigReader, HeadName
from qkv.checkpoints.format import CheckpointFormat
from qkv.checkpoints.import_card import ImportCard, describe_config
from qkv.checkpoints.registry import find_format
from qkv.checkpoints.sentence_transformers import as_sentence_encoder, is_sentence_encoder
from qkv.checkpoints.state_dict import TensorSource, load_weights, unprefixed_names
from qkv.errors import BundleError, ConfigError
from qkv.files import lexists, read_json, suggest_path
from qkv.gguf import Gguf, open_gguf
from qkv.model import EncoderOnly, Model, ModelConfig, skeleton
from qkv.text import SpecialTokens, Tokenizer, has_tokenizer, read_tokenizer
from qkv.weights import open_weights

CONFIG = "config.json"
TOKENIZER_CONFIG = "tokenizer_config.json"
GGUF_MAGIC = b"GGUF"


@dataclass(frozen=True)
class Checkpoint:
    """A public model, ready to use."""

    model: Model
    tokenizer: Tokenizer | None
    card: ImportCard


def is_checkpoint(path: Path) -> bool:
    """Whether this is a public checkpoint rather than one of our bundles."""
    if is_gguf(path):
        return True
    if not (path / CONFIG).is_file():
        return False
    return "model_type" in read_json(path / CONFIG)


def is_gguf(path: Path) -> bool:
    """Whether the file starts with GGUF's magic bytes."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(len(GGUF_MAGIC)) == GGUF_MAGIC


def read_checkpoint(path: Path, pooler: bool = False) -> Checkpoint:
    """The model in a GGUF file, or in a directory with config.json and safetensors.

    pooler: pass text vectors through the model's own pooler, if its format has one.
    """
    if not path.exists():
        hint = suggest_path(path) or "; pass the directory of a public checkpoint"
        raise BundleError(f"{path} does not exist{hint}")
    if path.is_file() and not is_gguf(path):
        raise BundleError(f"{path} is a file; pass the directory that contains it")
    if path.is_dir():
        return _read_directory(path, pooler)
    if pooler:
        raise BundleError(f"{path} is a decoder, which has no pooler")
    return _read_gguf(path, open_gguf(path))


def _read_directory(path: Path, pooler: bool) -> Checkpoint:
    fields = _read_config_file(path)
    fmt = find_format(fields, str(path / CONFIG))
    head = _head_override(path, fmt, pooler)
    with open_weights(path) as weights:
        tokenizer = None
        if has_tokenizer(path):
            tokenizer = read_tokenizer(path, fields)
        reader = ConfigReader(fields, str(path / CONFIG), head)
        names = unprefixed_names(fmt, weights)
        config = read_model_config(fmt, reader, names)
        notes: list[str] = []
        if is_sentence_encoder(path):
            config, notes = as_sentence_encoder(config, path)
        elif isinstance(config, EncoderOnly):
            max_length = _tokenizer_max_length(path, config.length)
            config = config.model_copy(update={"max_length": max_length})
        return _build_checkpoint(path, fmt, reader, config, weights, names, tokenizer, notes)


def _read_config_file(path: Path) -> dict[str, Any]:
    """The fields of config.json; raises for checkpoints that cannot be loaded at all."""
    fields: dict[str, Any] = {}
    if (path / CONFIG).is_file():
        fields = read_json(path / CONFIG)
    if "model_type" not in fields:
        raise BundleError(
            f"{path} is not a public checkpoint: it has no config.json with a model_type; if it is "
            "a qkv bundle, pass it to any command directly, without importing"
        )
    if fields.get("auto_map"):
        raise BundleError(
            f"{path / CONFIG} needs custom code (auto_map), which is never run; this model cannot "
            f"be loaded"
        )
    if fields.get("quantization_config"):
        raise BundleError(
            f"{path / CONFIG} has quantized weights (quantization_config), which are not "
            f"supported; get the unquantized weights, or a GGUF file"
        )
    return fields


def _head_override(path: Path, fmt: CheckpointFormat, pooler: bool) -> HeadName | None:
    """The head to build if it is not the one that config.json names."""
    sentence_encoder = is_sentence_encoder(path)
    if pooler and sentence_encoder:
        raise BundleError(
            f"{path}: pooler=True is not possible, modules.json defines how texts are pooled"
        )
    if pooler and not fmt.has_pooler:
        raise BundleError(
            f"{path}: pooler=True is not possible, {fmt.model_types[0]} has no pooler"
        )
    if pooler:
        return "pooler"
    if sentence_encoder:
        return "vector"
    return None


def _tokenizer_max_length(path: Path, positions: int) -> int | None:
    """The `model_max_length` of the tokenizer, if it is below the number of positions."""
    if not lexists(path / TOKENIZER_CONFIG):
        return None
    length = read_json(path / TOKENIZER_CONFIG).get("model_max_length")
    if isinstance(length, bool) or not isinstance(length, int | float):
        return None
    # `transformers` writes 1e30 for "no limit".
    if 1 <= length < positions:
        return int(length)
    return None


def _read_gguf(path: Path, file: Gguf) -> Checkpoint:
    fields = file.config()
    fmt = find_format(fields, str(path))
    reader = ConfigReader(fields, str(path))
    weights = file.weights()
    names = unprefixed_names(fmt, weights)
    config = read_model_config(fmt, reader, names)
    tokenizer = Tokenizer(file.tokenizer(), _gguf_special_tokens(file))
    return _build_checkpoint(path, fmt, reader, config, weights, names, tokenizer)


def _gguf_special_tokens(file: Gguf) -> SpecialTokens:
    """The special tokens of the file; the ends of a turn and of a message also end a text."""
    special_tokens = file.special_tokens()
    tokens = file.metadata.get("tokenizer.ggml.tokens", [])
    extra_eos = []
    for name in ("eot", "eom"):
        id = file.metadata.get(f"tokenizer.ggml.{name}_token_id")
        if isinstance(id, int) and 0 <= id < len(tokens):
            extra_eos.append(tokens[id])
    return SpecialTokens(
        pad=special_tokens["pad"],
        unk=special_tokens["unk"],
        bos=special_tokens["bos"],
        eos=special_tokens["eos"],
        mask=None,
        extra_eos=tuple(extra_eos),
        chat_template=special_tokens["chat_template"],
    )


def _build_checkpoint(
    path: Path,
    fmt: CheckpointFormat,
    reader: ConfigReader,
    config: ModelConfig,
    weights: TensorSource,
    names: Mapping[str, str],
    tokenizer: Tokenizer | None,
    notes: Collection[str] = (),
) -> Checkpoint:
    """The model with its weights, and the card that documents the import."""
    _check_tokenizer(path, tokenizer, config)
    model = skeleton(config)
    try:
        report = load_weights(model, fmt, weights, names)
    except BundleError as error:
        # Errors of the weights reader already name the file.
        message = str(error)
        if not message.startswith(str(path)):
            message = f"{path} {message}"
        raise BundleError(message) from None
    dtypes = {str(weights.dtype(name)) for name in report.sources.values()}
    card = ImportCard(
        source=path.resolve().name,
        layout=fmt.model_types[0],
        architecture=_architecture(reader.fields),
        tensors=dict(Counter(conversion.label for conversion in report.conversions)),
        tied=report.tied,
        ignored=report.ignored,
        stored=sorted(dtype.removeprefix("torch.") for dtype in dtypes),
        options=describe_config(config),
        tokenizer="none" if tokenizer is None else tokenizer.summary,
        not_carried=[*fmt.notes(reader), *notes],
    )
    return Checkpoint(model.eval(), tokenizer, card)


def read_model_config(
    fmt: CheckpointFormat, reader: ConfigReader, tensors: Collection[str]
) -> ModelConfig:
    """Our config for a config.json; every error names the file."""
    if reader.head is None:
        _check_class(fmt, reader)
    try:
        return fmt.read_config(reader, tensors)
    except ConfigError as error:
        # Errors from combining fields (heads that do not divide the width) do not know the file.
        message = str(error)
        if reader.location not in message:
            message = f"{reader.location}: {message}"
        raise ConfigError(message) from None


def _check_class(fmt: CheckpointFormat, reader: ConfigReader) -> None:
    """Refuses classes whose output we cannot build."""
    supported = []
    for prefix in fmt.class_prefixes:
        supported += [prefix + suffix for suffix in fmt.class_suffixes]
    for name in map(str, reader.items("architectures")):
        if name not in supported:
            raise ConfigError(
                f"{reader.location}: the class {name} is not supported; for "
                f"{fmt.model_types[0]}, supported are {', '.join(supported)}"
            )


def _architecture(fields: Mapping[str, Any]) -> str:
    classes = fields.get("architectures")
    if isinstance(classes, list) and classes:
        return ", ".join(map(str, classes))
    return "not said"


def _check_tokenizer(path: Path, tokenizer: Tokenizer | None, config: ModelConfig) -> None:
    vocabulary = config.embedding.vocabulary
    if tokenizer is not None and tokenizer.vocab_size > vocabulary:
        raise BundleError(
            f"{path}: the tokenizer has {tokenizer.vocab_size:,} tokens but the model only "
            f"{vocabulary:,}; they do not belong together"
        )
