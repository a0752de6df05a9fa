"""Tiny models of odd sizes with random weights, built with the reference code of every format.

`transformers` is kept quiet and offline: most of its warnings are not about these tests.
"""

import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

os.environ["HF_HUB_OFFLINE"] = "1"
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    transformers = pytest.importorskip(
        "transformers", reason="the peer is not installed; pip install 'qkv[test]'"
    )
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()


@contextmanager
def quietly() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@dataclass(frozen=True)
class Peer:
    """A class of the peer and the config of one small model of it."""

    model: str  # the name of the class
    config: str
    fields: dict[str, Any]

    def make(self, seed: int = 0) -> Any:
        """The model with random parameters, biases and norm gains included."""
        with quietly():
            config = getattr(transformers, self.config)(**self.fields)
            config._attn_implementation = "eager"
            model = getattr(transformers, self.model)(config).eval()
        generator = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for parameter in model.parameters():
                noise = torch.randn(parameter.shape, generator=generator)
                std = 0.3
                if parameter.dim() != 1:
                    std = 1.0 / max(parameter.shape[-1], 1) ** 0.5
                parameter.copy_(parameter * 0.5 + noise * std)
            for name, buffer in model.named_buffers():
                if name.endswith("final_logits_bias"):
                    buffer.copy_(torch.randn(buffer.shape, generator=generator))
        return model

    def save(self, directory: Path, seed: int = 0) -> Any:
        model = self.make(seed)
        with quietly():
            model.save_pretrained(directory)
        return model


def load(name: str, directory: Path) -> Any:
    """The directory as loaded by `transformers`; missing or unexpected tensors are an error."""
    with quietly():
        model, report = getattr(transformers, name).from_pretrained(
            directory, output_loading_info=True, attn_implementation="eager"
        )
    assert not report["missing_keys"], report["missing_keys"]
    assert not report["unexpected_keys"], report["unexpected_keys"]
    return model.eval()


def texts(vocabulary: int, lengths: list[int], seed: int = 1) -> tuple[torch.Tensor, torch.Tensor]:
    """Random ids (B, T) without special tokens, and lengths (B,)."""
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(5, vocabulary, (len(lengths), max(lengths)), generator=generator)
    return ids, torch.tensor(lengths)


def attention_mask(lengths: torch.Tensor) -> torch.Tensor:
    """1 for tokens, 0 for padding, as `transformers` expects it."""
    return (torch.arange(int(lengths.max())) < lengths[:, None]).long()


Make = Callable[[], Any]
