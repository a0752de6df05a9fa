"""Structured output: only tokens that a grammar allows may be sampled, by llguidance.

The grammar masks logits before anything else is done with them, and after their log-probabilities
were taken, so that those stay the model's own.
"""

from functools import lru_cache

import llguidance
import numpy as np
import torch
from llguidance import LLMatcher, LLTokenizer
from llguidance.numpy import allocate_token_bitmask, fill_next_token_bitmask
from torch import Tensor

from qkv.engine.generate import LogitsProcessor
from qkv.errors import UsageError
from qkv.text import Tokenizer


@lru_cache(maxsize=8)
def grammar_tokenizer(tokenizer: Tokenizer) -> LLTokenizer:
    """The vocabulary as llguidance reads it: the bytes of each token, and which one ends a text.

    Raises a UsageError for a tokenizer whose texts are not the joined bytes of their tokens.
    """
    if not tokenizer.joins_token_bytes:
        raise UsageError(
            "this model's tokenizer puts or drops characters between tokens, so its answers "
            "cannot be held to a grammar"
        )
    tokens = [tokenizer.token_bytes(id) for id in range(tokenizer.vocab_size)]
    special = sorted(tokenizer.special_ids)
    wrapper = _Vocabulary(tokens, special, tokenizer)
    return llguidance.LLTokenizer(llguidance.TokenizerWrapper(wrapper), n_vocab=len(tokens))


class _Vocabulary:
    """The attributes that llguidance's wrapper looks for."""

    def __init__(self, tokens: list[bytes], special: list[int], tokenizer: Tokenizer) -> None:
        self.tokens = tokens
        self.special_token_ids = special
        self.eos_token_id = tokenizer.eos_ids[0]
        self.bos_token_id = None
        self._tokenizer = tokenizer

    def __call__(self, text: bytes | str) -> list[int]:
        if isinstance(text, bytes):
            text = text.decode("utf-8", "replace")
        return self._tokenizer.encode(text)


class GrammarMask(LogitsProcessor):
    """A logits processor that allows what may come next in the grammar.

    It follows one completion: each call sees the ids so far, of which the new ones are consumed.
    """

    def __init__(self, tokenizer: LLTokenizer, grammar: str, prompt_tokens: int) -> None:
        self._matcher = LLMatcher(tokenizer, grammar)
        self._consumed = prompt_tokens
        self._bitmask = allocate_token_bitmask(1, tokenizer.vocab_size)
        self._raise_error()

    def apply(self, logits: Tensor, ids: Tensor) -> Tensor:
        for token in ids[self._consumed :].tolist():
            self._matcher.consume_token(token)
            self._raise_error()
        self._consumed = len(ids)
        fill_next_token_bitmask(self._matcher, self._bitmask)
        self._raise_error()
        bits = np.unpackbits(self._bitmask.view(np.uint8), bitorder="little")
        allowed = torch.from_numpy(bits[: len(logits)].astype(bool))
        return logits.masked_fill(~allowed, -torch.inf)

    def _raise_error(self) -> None:
        if self._matcher.is_error():
            raise UsageError(f"the grammar cannot be held to: {self._matcher.get_error()}")
