"""An answer on its way from token ids to text."""

from dataclasses import dataclass
from typing import Literal, NamedTuple

from qkv.engine.generate.choosing import Choice
from qkv.engine.generate.request import Request
from qkv.engine.generate.stopping import StopTexts
from qkv.engine.generate.streaming import TextStream
from qkv.text import Tokenizer

StopReason = Literal["stop", "length", "end"]  # a stop text, enough tokens, the model's own end


class Token(NamedTuple):
    """One token as it is written; its text is "" while a character or a stop text is unclear."""

    id: int
    text: str
    logprob: float


@dataclass(frozen=True)
class Generation:
    """A finished answer.

    tokens and logprobs hold all that the model wrote: its end mark and the tokens of a stop text
    too, neither of which is part of the text.
    """

    text: str
    tokens: tuple[int, ...]
    logprobs: tuple[float, ...]
    stop_reason: StopReason
    prompt_tokens: int


class Writing:
    """Takes the tokens of one request as they are chosen and gives their text as it is certain."""

    def __init__(self, request: Request, tokenizer: Tokenizer) -> None:
        self.request = request
        self.tokens: list[int] = []
        self.logprobs: list[float] = []
        self.stop_reason: StopReason | None = None
        self._pieces: list[str] = []
        self._stream, self._stops = TextStream(tokenizer), StopTexts(request.stop)

    @property
    def text(self) -> str:
        """What is certain so far."""
        return "".join(self._pieces)

    def push(self, choice: Choice) -> Token:
        """The token with the text that is certain now; `stop_reason` says if it was the last."""
        self.tokens.append(choice.id)
        self.logprobs.append(choice.logprob)
        ended = choice.id in self.request.ends
        last = ended or len(self.tokens) == self.request.max_tokens
        piece = "" if ended else self._stream.push(choice.id)
        if last:
            piece += self._stream.finish()
        text, stopped = self._stops.push(piece)
        if stopped:
            self.stop_reason = "stop"
        elif last:
            text += self._stops.finish()
            self.stop_reason = "end" if ended else "length"
        self._pieces.append(text)
        return Token(choice.id, text, choice.logprob)

    def generation(self) -> Generation:
        """The finished answer."""
        assert self.stop_reason is not None
        return Generation(
            self.text,
            tuple(self.tokens),
            tuple(self.logprobs),
            self.stop_reason,
            len(self.request.ids),
        )
