"""Public checkpoint formats: one file each, loaded strictly and exported again."""

from qkv.checkpoints.format import CheckpointFormat
from qkv.checkpoints.import_card import ImportCard, describe_config, format_value
from qkv.checkpoints.load import Checkpoint, is_checkpoint, read_checkpoint
from qkv.checkpoints.registry import FORMATS, find_format
from qkv.checkpoints.save import (
    ExportResult,
    public_classification_head,
    write_checkpoint,
    write_gguf_file,
)
from qkv.checkpoints.state_dict import self_test

__all__ = [
    "FORMATS",
    "Checkpoint",
    "CheckpointFormat",
    "ExportResult",
    "ImportCard",
    "describe_config",
    "find_format",
    "format_value",
    "is_checkpoint",
    "public_classification_head",
    "read_checkpoint",
    "self_test",
    "write_checkpoint",
    "write_gguf_file",
]
