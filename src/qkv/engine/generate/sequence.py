"""A request on its way to a completion: Request → Sequence → Completion."""

from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from qkv.engine.generate.request import Request
from qkv.engine.generate.sampling import SampledToken, Sampler
from qkv.engine.generate.streaming import Detokenizer, StopStrings
from qkv.text import Tokenizer

# A stop string was reached, max_tokens were generated, or the model generated an EOS token.
StopReason = Literal["stop", "length", "end"]


class Token(NamedTuple):
    """One generated token; its text is "" while a character or a stop string is incomplete.

    alternatives: the most probable tokens with their log-probabilities, if the request asks.
    """

    id: int
    text: str
    logprob: float
    alternatives: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True)
class Completion:
    """A finished completion.

    tokens and logprobs include the EOS token and the tokens of a stop string, the text does not.
    """

    text: str
    tokens: tuple[int, ...]
    logprobs: tuple[float, ...]
    stop_reason: StopReason
    prompt_tokens: int


class Sequence:
    """The tokens generated for a request so far, with their text.

    tokenizer: without one the sequence has no text, and stop strings are not looked for.
    """

    def __init__(self, request: Request, tokenizer: Tokenizer | None = None) -> None:
        self.request = request
        self.tokens: list[int] = []
        self.logprobs: list[float] = []
        self.stop_reason: StopReason | None = None
        self.cached_tokens = 0  # of the prompt, copied from the prefix cache
        self.prefill_alone = False  # its group could not be read, so it is tried by itself
        self._pieces: list[str] = []
        self._detokenizer = None if tokenizer is None else Detokenizer(tokenizer)
        self._stop_strings = StopStrings(request.stop)

    @cached_property
    def sampler(self) -> Sampler:
        return Sampler(self.request)

    @cached_property
    def prompt_ids(self) -> NDArray[np.int64]:
        return np.array(self.request.ids, dtype=np.int64)

    @property
    def text(self) -> str:
        """The text that is certain so far."""
        return "".join(self._pieces)

    def append(self, sample: SampledToken) -> Token:
        """Adds a token; `stop_reason` is set if it was the last one."""
        self.tokens.append(sample.id)
        self.logprobs.append(sample.logprob)
        if sample.id in self.request.eos_ids:
            self.stop_reason = "end"
        elif len(self.tokens) == self.request.max_tokens:
            self.stop_reason = "length"
        text = self._next_text(sample.id)
        self._pieces.append(text)
        return Token(sample.id, text, sample.logprob, sample.alternatives)

    def completion(self) -> Completion:
        """The finished completion."""
        assert self.stop_reason is not None
        return Completion(
            self.text,
            tuple(self.tokens),
            tuple(self.logprobs),
            self.stop_reason,
            len(self.request.ids),
        )

    def _next_text(self, id: int) -> str:
        """The text that is certain now; a stop string changes the stop reason."""
        if self._detokenizer is None:
            return ""
        piece = ""
        if self.stop_reason != "end":
            piece = self._detokenizer.push(id)
        if self.stop_reason is not None:
            piece += self._detokenizer.finish()
        text, stopped = self._stop_strings.push(piece)
        if stopped:
            self.stop_reason = "stop"
        elif self.stop_reason is not None:
            text += self._stop_strings.finish()
        return text
