"""Decoding: the model reads tokens into its cache, and the next token is sampled.

`decode_step` is the one step behind everything that generates: a single completion
(`decode_one`), a batch (`Scheduler`), and the samples printed during training. Speculative
decoding reads through `forward_tokens`, and accepts or rejects instead of sampling.
"""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

import torch
from torch import Tensor

from qkv.attention import KVCache, Mask
from qkv.engine.batching import inference
from qkv.engine.generate.request import Request
from qkv.engine.generate.sampling import (
    SampledToken,
    Sampler,
    expect_finite,
    sample_batch,
    top_alternatives,
)
from qkv.engine.optimized.kernel_modules import KernelLogits
from qkv.machine import adapt_threads
from qkv.model import Decoder

PREFILL_CHUNK = 1024  # prompt tokens per forward pass

SCORE_CHUNK = 128  # positions of a prompt whose logits are in memory at a time

# `model.output` takes lengths, which only outputs that pool the states look at.
NO_LENGTHS = torch.empty(0)


def decode_one(
    model: Decoder, request: Request, vocab_size: int, session: "SessionCache | None" = None
) -> Iterator[SampledToken]:
    """The tokens of one completion, each computed when it is asked for.

    vocab_size: how many tokens there are to sample from. session: what earlier requests have left
    in it is not read again.
    """
    sampler = Sampler(request)
    device = model.embedding.weight.device
    if session is None:
        session = SessionCache(model)
    with decoding(model):
        states = session.read_prompt(request)
        token = sample_next(model, states, sampler, vocab_size)
    latest = torch.zeros(1, 1, dtype=torch.long, device=device)
    for _ in range(request.max_tokens - 1):
        yield token
        if token.id in request.eos_ids:
            return
        with decoding(model):
            sampler.append(token.id)
            latest.fill_(token.id)
            (sample,) = decode_step(model, latest, [sampler], session.cache, vocab_size)
            session.ids.append(token.id)
        if isinstance(sample, Exception):
            raise sample
        token = sample
    yield token


class SessionCache:
    """The keys and values of one sequence after another: each prompt is read from where it differs.

    ids: the tokens whose keys and values are in the cache. computed: how many prompt tokens were
    read so far, without those that were in it already.
    """

    def __init__(self, model: Decoder) -> None:
        self.model = model
        self.ids: list[int] = []
        self.computed = 0
        self.cache = model.empty_cache(1, 0)

    def read_prompt(self, request: Request) -> Tensor:
        """Reads the tokens of the prompt that are not in the cache; their states, (1, T, D)."""
        cached = 0
        end = min(len(self.ids), len(request.ids) - 1)  # the last token is read for its state
        while cached < end and self.ids[cached] == request.ids[cached]:
            cached += 1
        # An interrupted step may have left some layers longer than others: all are truncated.
        self.ids = self.ids[:cached]
        self.cache.truncate(cached)
        self._reserve(request.max_length)
        states = forward_tokens(self.model, request.ids[cached:], self.cache)
        self.ids = list(request.ids)
        self.computed += len(request.ids) - cached
        return states

    def _reserve(self, capacity: int) -> None:
        """Makes the cache large enough."""
        old = self.cache
        if old.layers and old.layers[0].capacity >= capacity:
            return
        self.cache = self.model.empty_cache(1, capacity)
        for layer, before in zip(self.cache.layers, old.layers, strict=True):
            if before.length:
                layer.append(before.k[:, :, : before.length], before.v[:, :, : before.length])


def decode_step(
    model: Decoder,
    ids: Tensor,
    samplers: Sequence[Sampler],
    cache: KVCache,
    vocab_size: int,
    *,
    mask: Mask | None = None,
    positions: Tensor | None = None,
) -> list[SampledToken | Exception]:
    """Reads the latest token of each sequence, ids (B, 1), and samples its next one.

    A row that fails is an exception in its place; it does not affect the others.
    """
    states = model.states(ids, mask=mask, positions=positions, cache=cache)  # (B, 1, D)
    if len(samplers) > 1:
        return sample_batch(samplers, last_token_logits(model, states, vocab_size))
    try:
        return [sample_next(model, states, samplers[0], vocab_size)]
    except Exception as error:  # a processor may be anybody's code
        return [error]


def sample_next(model: Decoder, states: Tensor, sampler: Sampler, vocab_size: int) -> SampledToken:
    """The token after the last position of a single sequence, states (1, T, D)."""
    if sampler.is_plain_argmax and isinstance(model.output, KernelLogits):
        # The kernel finds the argmax without writing the logits to memory.
        id, logprob = model.output.argmax(states[0, -1], vocab_size)
        expect_finite(logprob)
        return SampledToken(id, logprob)
    return sampler.sample(last_token_logits(model, states, vocab_size)[0])


def forward_tokens(model: Decoder, ids: Sequence[int], cache: KVCache) -> Tensor:
    """Reads ids into the cache, in chunks; the states of the last chunk, (1, T, D)."""
    row = torch.tensor([ids], device=model.embedding.weight.device)
    for start in range(0, len(ids), PREFILL_CHUNK):
        states = model.states(row[:, start : start + PREFILL_CHUNK], cache=cache)
    return states


@dataclass(frozen=True)
class ScoredPrompt:
    """Each token of a prompt but the first, with its log-probability after those before it."""

    ids: tuple[int, ...]
    tokens: tuple[SampledToken, ...]


def score_prompts(
    model: Decoder, prompts: Sequence[Sequence[int]], vocab_size: int, top_logprobs: int = 0
) -> list[ScoredPrompt]:
    """How probable the model finds the tokens of each prompt; the prompts are read together.

    top_logprobs: how many alternatives each token gets.
    """
    longest = max(map(len, prompts))
    ids = torch.zeros(len(prompts), longest, dtype=torch.long)
    for row, prompt in zip(ids, prompts, strict=True):
        row[: len(prompt)] = torch.tensor(prompt)
    scored = []
    with decoding(model):
        # Right padding needs no mask: under the causal one no token sees it.
        states = model.states(ids.to(model.embedding.weight.device))
        for prompt, row_states in zip(prompts, states, strict=True):
            tokens: list[SampledToken] = []
            for start in range(0, len(prompt) - 1, SCORE_CHUNK):
                stop = min(start + SCORE_CHUNK, len(prompt) - 1)
                logits = token_logits(model, row_states[None, start:stop], vocab_size)[0]
                targets = prompt[start + 1 : stop + 1]
                tokens += _score_tokens(logits.log_softmax(dim=-1), targets, top_logprobs)
            scored.append(ScoredPrompt(tuple(prompt), tuple(tokens)))
    return scored


def _score_tokens(logprobs: Tensor, targets: Sequence[int], top: int) -> list[SampledToken]:
    """The targets with their log-probabilities, from logprobs (T, V)."""
    own = logprobs.gather(1, torch.tensor(targets, device=logprobs.device)[:, None])[:, 0].tolist()
    tokens = []
    for target, logprob, row in zip(targets, own, logprobs, strict=True):
        expect_finite(logprob)
        tokens.append(SampledToken(target, logprob, top_alternatives(row, top)))
    return tokens


def last_token_logits(model: Decoder, states: Tensor, vocab_size: int) -> Tensor:
    """The logits of the token after the last position, (B, V) float32."""
    return token_logits(model, states[:, -1:], vocab_size)[:, 0]


def token_logits(model: Decoder, states: Tensor, vocab_size: int) -> Tensor:
    """The logits of the token after each position, (B, T, V) float32.

    vocab_size: of the tokenizer; an embedding may have padding rows beyond it.
    """
    logits: Tensor = model.output(states, NO_LENGTHS, model.embedding.weight)
    return logits[..., :vocab_size].float()


def decoding(model: Decoder) -> AbstractContextManager[None]:
    """Inside, dropout is off and no gradients are recorded."""
    adapt_threads()
    if model.training:
        return inference(model)
    return torch.inference_mode()
