"""What can be read off a model directly: logit lens, prompt log-probabilities, attention received.

The logit lens (nostalgebraist 2020) decodes the state after each layer as if it were the last one:
through the final norm, where there is one, and the output. The last line is the model's own
output; no earlier layer was trained to be decoded like this.

Attention received is where the model attends, which is not an explanation: weights can be changed a
great deal without changing the output (Jain and Wallace 2019, "Attention is not Explanation"). It
is therefore shown next to the attributions and tested as they are.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from math import exp, log

import numpy as np
import torch
from torch import Tensor, nn

from qkv.attention import AttentionSteps
from qkv.engine import inference
from qkv.engine.generate import last_token_logits, token_logits
from qkv.errors import UsageError
from qkv.interpret.attribution.faithfulness import FloatArray
from qkv.model import Decoder, Encoder
from qkv.text import Tokenizer

CHUNK_POSITIONS = 128  # positions whose logits are in memory at a time
ATTENTION_CAVEAT = "attention is where the model looked, not why it answered so"


@dataclass(frozen=True)
class LayerReadout:
    """The logit lens at one layer: the most probable token, and the probability of one token.

    layer: 0 is the embedding, before the first layer. rank: 1 for the most probable token.
    """

    layer: int
    best: str
    best_id: int
    best_probability: float
    probability: float
    rank: int

    def json(self) -> dict[str, object]:
        layer = None
        if self.layer:
            layer = self.layer - 1  # layers are numbered from 0 everywhere else
        return {
            "layer": layer,
            "best": self.best,
            "best_probability": self.best_probability,
            "probability": self.probability,
            "rank": self.rank,
        }


def logit_lens(
    model: Decoder, tokenizer: Tokenizer, ids: Sequence[int], token: int
) -> tuple[LayerReadout, ...]:
    """The next-token distribution decoded before the first layer and after each one."""
    readouts = []
    with inference(model):
        for layer, state in enumerate(layer_states(model, ids)):
            last = model.decoder.norm_out(state[:, -1:])
            logits = last_token_logits(model, last, tokenizer.vocab_size)[0]
            probs = logits.double().softmax(dim=-1)
            best = int(probs.argmax())
            readout = LayerReadout(
                layer=layer,
                best=tokenizer.token(best),
                best_id=best,
                best_probability=float(probs[best]),
                probability=float(probs[token]),
                rank=1 + int((probs > probs[token]).sum()),
            )
            readouts.append(readout)
    return tuple(readouts)


def layer_states(model: Decoder, ids: Sequence[int]) -> list[Tensor]:
    """The input of the first layer and the output of each layer, (1, T, D) each."""
    states: list[Tensor] = []

    def record_input(block: nn.Module, args: tuple[Tensor, ...]) -> None:
        if not states:
            states.append(args[0])

    def record_output(block: nn.Module, args: object, state: Tensor) -> None:
        states.append(state)

    # Layers may share one block, which must be hooked only once.
    blocks = {id(block): block for block in model.decoder.blocks()}.values()
    hooks = [block.register_forward_pre_hook(record_input) for block in blocks]
    hooks += [block.register_forward_hook(record_output) for block in blocks]
    try:
        model.states(torch.tensor([list(ids)], device=model.embedding.weight.device))
    finally:
        for hook in hooks:
            hook.remove()
    return states


@dataclass(frozen=True)
class TokenProb:
    """A token, as it is displayed, and its probability."""

    token: str
    id: int
    probability: float

    def json(self) -> dict[str, object]:
        return asdict(self)


@dataclass(frozen=True)
class PromptToken:
    """A token of the prompt, and the most probable tokens in its position.

    The first token follows nothing, so its numbers are None. surprisal: −log₂ of the probability,
    in bits. rank: 1 for the most probable token.
    """

    token: str
    id: int
    probability: float | None = None
    surprisal: float | None = None
    rank: int | None = None
    alternatives: tuple[TokenProb, ...] = ()

    def json(self) -> dict[str, object]:
        return {
            "token": self.token,
            "id": self.id,
            "probability": self.probability,
            "surprise": self.surprisal,
            "rank": self.rank,
            "alternatives": [alternative.json() for alternative in self.alternatives],
        }


def score_prompt(
    model: Decoder, tokenizer: Tokenizer, ids: Sequence[int], top: int
) -> tuple[tuple[PromptToken, ...], tuple[TokenProb, ...]]:
    """Each token of the prompt with its probability, and the `top` most probable next tokens."""
    prompt = [PromptToken(tokenizer.token(ids[0]), ids[0])]
    next_tokens: tuple[TokenProb, ...] = ()
    with inference(model):
        device = model.embedding.weight.device
        states = model.states(torch.tensor([list(ids)], device=device))
        for first in range(0, len(ids), CHUNK_POSITIONS):
            chunk = states[:, first : first + CHUNK_POSITIONS]
            logits = token_logits(model, chunk, tokenizer.vocab_size)[0]
            log_probs = logits.double().log_softmax(dim=-1)
            for position, row in enumerate(log_probs, first + 1):
                best = _most_probable(tokenizer, row, top)
                if position == len(ids):
                    next_tokens = best
                else:
                    prompt.append(_prompt_token(tokenizer, ids[position], row, best))
    return tuple(prompt), next_tokens


def _prompt_token(
    tokenizer: Tokenizer, id: int, log_probs: Tensor, alternatives: tuple[TokenProb, ...]
) -> PromptToken:
    log_prob = float(log_probs[id])
    return PromptToken(
        token=tokenizer.token(id),
        id=id,
        probability=exp(log_prob),
        surprisal=-log_prob / log(2),
        rank=1 + int((log_probs > log_probs[id]).sum()),
        alternatives=alternatives,
    )


def _most_probable(tokenizer: Tokenizer, log_probs: Tensor, top: int) -> tuple[TokenProb, ...]:
    best, ids = log_probs.topk(min(top, len(log_probs)))
    pairs = zip(ids.tolist(), best.exp().tolist(), strict=True)
    return tuple(TokenProb(tokenizer.token(id), id, prob) for id, prob in pairs)


def resolve_token(tokenizer: Tokenizer, token: str | int) -> int:
    """The id of a token given by its id, as it is displayed, or as a text that is one token.

    The displayed form is tried first: “ she” with its space and “she” without are two tokens.
    """
    if isinstance(token, int):
        if not 0 <= token < tokenizer.vocab_size:
            raise UsageError(
                f"token {token} does not exist; ids run from 0 to {tokenizer.vocab_size - 1}"
            )
        return token
    ids = [id for id in range(tokenizer.vocab_size) if tokenizer.token(id) == token]
    if len(ids) != 1:
        ids = tokenizer.encode(token)
    if len(ids) == 1:
        return ids[0]
    if not ids:
        raise UsageError("the token is empty; name one")
    parts = ", ".join(f"“{tokenizer.token(id)}”" for id in ids)
    raise UsageError(f"“{token}” is {len(ids)} tokens, {parts}; name one token")


def attention_received(model: Encoder, ids: tuple[int, ...]) -> FloatArray:
    """The fraction of attention each position receives, over layers, heads and queries: (T,)."""
    blocks = list(model.encoder.blocks())

    def encode() -> None:
        model.encode(torch.tensor([ids], device=model.embedding.weight.device))

    layers = [weights.mean(axis=(0, 1)) for weights in _attention_weights(model, blocks, encode)]
    return np.asarray(np.mean(layers, axis=0))


def last_attention(model: Decoder, ids: Sequence[int]) -> list[FloatArray]:
    """Where the last token of these looks: for each layer its weights by head, (H, T)."""
    blocks = list(model.decoder.blocks())

    def read() -> None:
        model.states(torch.tensor([list(ids)], device=model.embedding.weight.device))

    return [weights[:, -1] for weights in _attention_weights(model, blocks, read)]


def _attention_weights(
    model: Encoder | Decoder, blocks: Sequence[nn.Module], forward: Callable[[], None]
) -> list[FloatArray]:
    """The attention weights of one forward pass over a single text, (H, T, S) for each layer."""
    layers: list[FloatArray] = []

    def record(tap: object, args: object, steps: AttentionSteps) -> None:
        layers.append(np.asarray(steps.weights[0].double().cpu().numpy()))

    # Hooking them makes attention use the reference kernel, which has the weights. Layers may
    # share one block, which must be hooked only once.
    unique = {id(block): block for block in blocks}.values()
    taps = [block.get_submodule("attention.core.hook_point") for block in unique]
    hooks = [tap.register_forward_hook(record) for tap in taps]
    try:
        with inference(model):
            forward()
    finally:
        for hook in hooks:
            hook.remove()
    return layers
