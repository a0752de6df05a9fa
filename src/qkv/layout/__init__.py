"""Public checkpoints: one file a layout, read strictly and written back."""

from qkv.layout.card import Card
from qkv.layout.known import LAYOUTS, find_layout
from qkv.layout.layout import Layout
from qkv.layout.read import Checkpoint, is_checkpoint, read_checkpoint
from qkv.layout.self_test import self_test

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
