"""Training through compiled passes: what `--compile` puts in the place of a model's layers."""

from qkv.train.looped.muon import loop_muon
from qkv.train.looped.twin import looped

__all__ = ["loop_muon", "looped"]
