"""What a model must offer to write text, and how it is asked for its scores."""

from contextlib import AbstractContextManager

import torch
from torch import Tensor

from qkv.engine.answering import answering
from qkv.engine.purpose import purpose_of
from qkv.errors import UsageError
from qkv.model import Decoder, Model, NextToken

CHUNK = 1024  # tokens of prompts that are read at a time
UNREAD = torch.empty(0)  # lengths, which only outputs that pool the states look at


def expect_writer(model: Model) -> None:
    """Refuses a model that does not say which token follows."""
    if not isinstance(model, Decoder):
        it_is, command = purpose_of(model)
        raise UsageError(f"this model is {it_is}, so it does not write text; use {command}")
    if not isinstance(model.config.output, NextToken):
        kind = model.config.output.kind.replace("_", " ")
        raise UsageError(f"this decoder answers with a {kind}, not with the next token")


def reach(model: Decoder) -> int:
    """How many tokens the model reads at most."""
    limit = model.decoder.position.limit
    return model.config.length if limit is None else int(limit)


def reading(model: Decoder) -> AbstractContextManager[None]:
    """Inside, nothing is dropped at random and no gradient is kept."""
    return answering(model) if model.training else torch.inference_mode()


def last_scores(model: Decoder, states: Tensor, vocabulary: int) -> Tensor:
    """The scores of the token after the last position, (B, V) float32.

    Only tokens that the tokenizer knows: a table may have rows to spare.
    """
    return all_scores(model, states[:, -1:], vocabulary)[:, 0]


def all_scores(model: Decoder, states: Tensor, vocabulary: int) -> Tensor:
    """The scores of the token after each position, (B, T, V) float32."""
    scores: Tensor = model.output(states, UNREAD, model.embedding.weight)
    return scores[..., :vocabulary].float()
