"""What a decoder would have said after each layer: the logit lens (nostalgebraist 2020).

The state after a layer is read as if it were the last one: through the norm after the last block,
where the arrangement has one, and the output. The last line is the model's own answer. Earlier ones
are a reading, not a thought: no layer but the last was trained to be read so.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from math import exp, log

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from qkv.attention import Steps
from qkv.engine.batching import inference
from qkv.engine.generate.request import last_token_logits, token_logits
from qkv.errors import UsageError
from qkv.model import Decoder, Encoder
from qkv.text import Tokenizer

# FOLDED explain/why/given: How likely a decoder thought each token of a text before it came,
#   and what else it expected.
# FOLDED explain/why/resolve_token: Which token a person means: by its number, as it is shown, or
#   as a text that is one token.
# FOLDED explain/why/looks: Where a model looked: the attention each position received. It is no
#   reason for anything.
#
#   Weights can be changed a great deal without changing an answer (Jain and Wallace 2019,
#   "Attention is
#   not Explanation"), so they stand beside an explanation and are tested like one.


@dataclass(frozen=True)
class LayerReadout:
    """The likeliest token after one layer, and how likely the asked one is there.

    Layer 0 is before the first: the embedding itself. rank: 1 for the likeliest token.
    """

    layer: int
    best: str
    best_id: int
    best_probability: float
    probability: float
    rank: int

    def json(self) -> dict[str, object]:
        return {
            "layer": self.layer - 1 if self.layer else None,  # as they are named: from 0
            "best": self.best,
            "best_probability": self.best_probability,
            "probability": self.probability,
            "rank": self.rank,
        }


def logit_lens(
    model: Decoder, tokenizer: Tokenizer, ids: Sequence[int], token: int
) -> tuple[LayerReadout, ...]:
    """What follows the ids, as it looks before the first layer and after each one."""
    with inference(model):
        found = []
        for layer, state in enumerate(layer_states(model, ids)):
            read = model.decoder.norm_out(state[:, -1:])
            shares = (
                last_token_logits(model, read, tokenizer.vocab_size)[0].double().softmax(dim=-1)
            )
            best = int(shares.argmax())
            found.append(
                LayerReadout(
                    layer,
                    tokenizer.token(best),
                    best,
                    float(shares[best]),
                    float(shares[token]),
                    1 + int((shares > shares[token]).sum()),
                )
            )
        return tuple(found)


def layer_states(model: Decoder, ids: Sequence[int]) -> list[Tensor]:
    """What goes into the first layer, and what comes out of each: (1, T, D) every time."""
    states: list[Tensor] = []

    def enter(block: nn.Module, given: tuple[Tensor, ...]) -> None:
        if not states:
            states.append(given[0])

    def leave(block: nn.Module, given: object, state: Tensor) -> None:
        states.append(state)

    blocks = {id(block): block for block in model.decoder.blocks()}.values()  # layers may share one
    hooks = [block.register_forward_pre_hook(enter) for block in blocks]
    hooks += [block.register_forward_hook(leave) for block in blocks]
    try:
        model.states(torch.tensor([list(ids)], device=model.embedding.weight.device))
    finally:
        for hook in hooks:
            hook.remove()
    return states


ROWS = 128  # positions whose scores are held at a time


@dataclass(frozen=True)
class TokenProb:
    """A token, as people read it, and how likely it is."""

    token: str
    id: int
    probability: float

    def json(self) -> dict[str, object]:
        return asdict(self)


@dataclass(frozen=True)
class PromptToken:
    """A token of the text and what stood to choose from in its place, the likeliest first.

    Nothing is known of a token that nothing stands before: its numbers are None. surprise: in
    bits, log₂ of 1 ÷ its probability. rank: 1 for the likeliest.
    """

    token: str
    id: int
    probability: float | None = None
    surprise: float | None = None
    rank: int | None = None
    alternatives: tuple[TokenProb, ...] = ()

    def json(self) -> dict[str, object]:
        others = [other.json() for other in self.alternatives]
        return {**asdict(self), "alternatives": others}


def score_prompt(
    model: Decoder, tokenizer: Tokenizer, ids: Sequence[int], top: int
) -> tuple[tuple[PromptToken, ...], tuple[TokenProb, ...]]:
    """Each token of the text, and the likeliest to follow the last; `top` to choose from."""
    found = [PromptToken(tokenizer.token(ids[0]), ids[0])]
    following: tuple[TokenProb, ...] = ()
    with inference(model):
        device = model.embedding.weight.device
        states = model.states(torch.tensor([list(ids)], device=device))
        for first in range(0, len(ids), ROWS):
            scores = token_logits(model, states[:, first : first + ROWS], tokenizer.vocab_size)[0]
            for at, logs in enumerate(scores.double().log_softmax(dim=-1), first + 1):
                likely = _likely(tokenizer, logs, top)
                if at == len(ids):
                    following = likely
                else:
                    found.append(_given(tokenizer, ids[at], logs, likely))
    return tuple(found), following


def _given(
    tokenizer: Tokenizer, id: int, logs: Tensor, likely: tuple[TokenProb, ...]
) -> PromptToken:
    own, rank = float(logs[id]), 1 + int((logs > logs[id]).sum())
    return PromptToken(tokenizer.token(id), id, exp(own), -own / log(2), rank, likely)


def _likely(tokenizer: Tokenizer, logs: Tensor, top: int) -> tuple[TokenProb, ...]:
    best, ids = logs.topk(min(top, len(logs)))
    pairs = zip(ids.tolist(), best.exp().tolist(), strict=True)
    return tuple(TokenProb(tokenizer.token(id), id, share) for id, share in pairs)


def resolve_token(tokenizer: Tokenizer, asked: str | int) -> int:
    """Its number in the vocabulary; refused if there is none, or several.

    As it is shown comes first: “ she” with its space and “she” without are two tokens.
    """
    if isinstance(asked, int):
        if not 0 <= asked < tokenizer.vocab_size:
            raise UsageError(
                f"token {asked} does not exist; there are 0 to {tokenizer.vocab_size - 1}"
            )
        return asked
    shown = [id for id in range(tokenizer.vocab_size) if tokenizer.token(id) == asked]
    ids = tokenizer.encode(asked) if len(shown) != 1 else shown
    if len(ids) == 1:
        return ids[0]
    if not ids:
        raise UsageError("the token asked for is empty; name one")
    parts = ", ".join(f"“{tokenizer.token(id)}”" for id in ids)
    raise UsageError(f"“{asked}” is {len(ids)} tokens, {parts}; name one token")


ATTENTION_CAVEAT = "attention is where the model looked, not why it answered so"


def attention_received(model: Encoder, ids: tuple[int, ...]) -> NDArray[np.float64]:
    """The share of all looks that each position got, over layers, heads and positions: (T,)."""
    seen: list[NDArray[np.float64]] = []

    def keep(tap: object, given: object, steps: Steps) -> None:
        seen.append(np.asarray(steps.weights[0].double().mean(dim=(0, 1)).cpu().numpy()))

    blocks = {id(block): block for block in model.encoder.blocks()}.values()
    taps = [block.get_submodule("attention.core.hook_point") for block in blocks]
    hooks = [tap.register_forward_hook(keep) for tap in taps]
    try:
        with inference(model):
            model.encode(torch.tensor([ids], device=model.embedding.weight.device))
    finally:
        for hook in hooks:
            hook.remove()
    return np.asarray(np.mean(seen, axis=0))
