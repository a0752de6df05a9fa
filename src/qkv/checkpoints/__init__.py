"""Public checkpoints: one file a layout, read strictly and written back."""

from qkv.checkpoints.format import Layout
from qkv.checkpoints.load import Card, Checkpoint, is_checkpoint, read_checkpoint
from qkv.checkpoints.registry import LAYOUTS, find_layout
from qkv.checkpoints.state_dict import self_test

__all__ = [
    "LAYOUTS",
    "Card",
    "Checkpoint",
    "Layout",
    "find_layout",
    "is_checkpoint",
    "read_checkpoint",
    "self_test",
]
