"""A loaded bundle that answers: embed, classify, translate and generate, whatever it can.

    model = qkv.load("runs/reviews")
    model.classify(["what a film"])
"""

from __future__ import annotations

import os

import torch

from qkv.bundle import Bundle
from qkv.errors import UsageError
from qkv.layout import Card
from qkv.model import Model
from qkv.text import Tokenizer


class Engine:
    """A model with its tokenizer, ready to answer."""

    def __init__(self, bundle: Bundle, name: str = "this model") -> None:
        self.bundle, self.name = bundle, name

    @classmethod
    def load(cls, directory: str | os.PathLike[str], device: torch.device | str = "cpu") -> Engine:
        """The model of a bundle or of a public checkpoint, told apart by looking."""
        return cls(Bundle.load(directory, device), str(directory))

    @property
    def model(self) -> Model:
        """The network itself, as it was trained."""
        return self.bundle.model

    @property
    def tokenizer(self) -> Tokenizer:
        if self.bundle.tokenizer is None:
            raise UsageError(f"{self.name} has no tokenizer, so it cannot read text")
        return self.bundle.tokenizer

    @property
    def card(self) -> Card | None:
        """Where it comes from, if it was imported."""
        return self.bundle.card
