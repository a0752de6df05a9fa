"""Tiny models with random weights, made by the peer, of odd sizes: every public layout's own code.

`transformers` warns of many things that are none of ours; here it is quiet and offline.
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
        """The model, every number of it random: also biases and gains."""
        with quietly():
            config = getattr(transformers, self.config)(**self.fields)
            config._attn_implementation = "eager"
            model = getattr(transformers, self.model)(config).eval()
        generator = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for parameter in model.parameters():
                drawn = torch.randn(parameter.shape, generator=generator)
                spread = 0.3 if parameter.dim() == 1 else 1.0 / max(parameter.shape[-1], 1) ** 0.5
                parameter.copy_(parameter * 0.5 + drawn * spread)
            for name, buffer in model.named_buffers():
                if name.endswith("final_logits_bias"):
                    buffer.copy_(torch.randn(buffer.shape, generator=generator))
        return model

    def save(self, place: Path, seed: int = 0) -> Any:
        model = self.make(seed)
        with quietly():
            model.save_pretrained(place)
        return model


def load(model: str, place: Path) -> Any:
    """What the peer makes of a directory; anything missing or unexpected in it is an error."""
    with quietly():
        found, report = getattr(transformers, model).from_pretrained(
            place, output_loading_info=True, attn_implementation="eager"
        )
    assert not report["missing_keys"], report["missing_keys"]
    assert not report["unexpected_keys"], report["unexpected_keys"]
    return found.eval()


def texts(vocabulary: int, lengths: list[int], seed: int = 1) -> tuple[torch.Tensor, torch.Tensor]:
    """ids (B, T) and lengths (B,); what pads is no special token."""
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(5, vocabulary, (len(lengths), max(lengths)), generator=generator)
    return ids, torch.tensor(lengths)


def shown(lengths: torch.Tensor) -> torch.Tensor:
    """The peer's attention mask: 1 where a text is real."""
    return (torch.arange(int(lengths.max())) < lengths[:, None]).long()


Make = Callable[[], Any]
