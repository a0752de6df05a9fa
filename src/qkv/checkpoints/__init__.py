"""Public checkpoint formats: one file each, loaded strictly and exported again."""

from qkv.checkpoints.format import CheckpointFormat
from qkv.checkpoints.import_card import ImportCard
from qkv.checkpoints.load import Checkpoint, is_checkpoint, read_checkpoint
from qkv.checkpoints.registry import FORMATS, find_format
from qkv.checkpoints.state_dict import self_test

__all__ = [
    "FORMATS",
    "Checkpoint",
    "CheckpointFormat",
    "ImportCard",
    "find_format",
    "is_checkpoint",
    "read_checkpoint",
    "self_test",
]
