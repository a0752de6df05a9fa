"""What a model must offer to write text, and how it is asked for its scores."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import torch
from torch import Tensor

from qkv.attention import KVCache, Mask
from qkv.engine.answering import answering
from qkv.engine.purpose import purpose_of
from qkv.errors import UsageError
from qkv.model import DecoderOnly, Model, NextToken

CHUNK = 1024  # tokens of prompts that are read at a time
UNREAD = torch.empty(0)  # lengths, which only outputs that pool the states look at


class LanguageModel(Protocol):
    """A decoder, or a faster twin of one."""

    @property
    def config(self) -> DecoderOnly: ...
    @property
    def embedding(self) -> Any: ...
    @property
    def decoder(self) -> Any: ...
    @property
    def output(self) -> Any: ...

    def states(
        self,
        ids: Tensor,
        lengths: Tensor | None = None,
        mask: Mask | None = None,
        positions: Tensor | None = None,
        cache: KVCache | None = None,
    ) -> Tensor: ...

    def empty_cache(self, batch: int, capacity: int | None = None) -> KVCache: ...


def expect_writer(model: object) -> None:
    """Refuses a model that does not say which token follows."""
    config = getattr(model, "config", None)
    if not isinstance(config, DecoderOnly):
        if not isinstance(model, Model):
            raise UsageError(f"a {type(model).__name__} is no model that writes text")
        it_is, command = purpose_of(model)
        raise UsageError(f"this model is {it_is}, so it does not write text; use {command}")
    if not isinstance(config.output, NextToken):
        kind = config.output.kind.replace("_", " ")
        raise UsageError(f"this decoder answers with a {kind}, not with the next token")


def reach(model: LanguageModel) -> int:
    """How many tokens the model reads at most."""
    limit = model.decoder.position.limit
    return model.config.length if limit is None else int(limit)


@contextmanager
def reading(model: LanguageModel) -> Iterator[None]:
    """Inside, nothing is dropped at random and no gradient is kept."""
    if getattr(model, "training", False):
        with answering(model):  # type: ignore[arg-type]  # whatever trains is a module
            yield
    else:
        with torch.inference_mode():
            yield


def last_scores(model: LanguageModel, states: Tensor, vocabulary: int) -> Tensor:
    """The scores of the token after the last position, (B, V) float32.

    Only tokens that the tokenizer knows: a table may have rows to spare.
    """
    return all_scores(model, states[:, -1:], vocabulary)[:, 0]


def all_scores(model: LanguageModel, states: Tensor, vocabulary: int) -> Tensor:
    """The scores of the token after each position, (B, T, V) float32."""
    scores: Tensor = model.output(states, UNREAD, model.embedding.weight)
    return scores[..., :vocabulary].float()
