"""An answer on its way from token ids to text."""

from dataclasses import dataclass
from typing import Literal, NamedTuple

from qkv.engine.generate.decode import Choice
from qkv.engine.generate.request import Request, StopStrings
from qkv.errors import DataError
from qkv.text import Tokenizer

# FOLDED engine/generate/streaming: Token ids to pieces of text as they come, never half a
#   character.
#
#   The pieces behind each other are exactly what the tokenizer makes of all ids at once,
#   whatever it
#   does at the first token and at the seams. Only a short window is decoded for each token:
#   the ids
#   not yet shown, and the one before them.

BROKEN = "\ufffd"  # what bytes that make no character are shown as

SPREAD = 3  # a character has 4 bytes at most: behind its last token up to 3 wait for a fourth

WAITING = 8  # tokens that wait before it is asked which of them are settled


class Detokenizer:
    """The text of ids that come one by one."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._decode = tokenizer.decode
        self._special = tokenizer.special_ids
        self._single_bytes = _byte_pieces(tokenizer)
        self._before: list[int] = []  # the last token shown: what comes after it is no beginning
        self._shown = ""  # what that token is by itself
        self._waiting: list[int] = []

    def push(self, id: int) -> str:
        """The text that is certain now; "" while a character is not complete."""
        if id in self._special and not self._decode([id]):
            return ""
        self._waiting.append(id)
        if id in self._single_bytes:
            return ""  # a run of these is one text or, if any is wrong, none: wait for its end
        text = self._text(self._waiting)
        if text.endswith(BROKEN):
            return self._settled_part(text)
        if text:
            self._settle(len(self._waiting))
        return text

    def finish(self) -> str:
        """What is left: nothing will come any more."""
        text = self._text(self._waiting)
        self._settle(len(self._waiting))
        return text

    def _text(self, ids: list[int]) -> str:
        return self._decode(self._before + ids)[len(self._shown) :]

    def _settled_part(self, text: str) -> str:
        """The beginning that no further byte can change, once many tokens wait.

        A cut inside a character shows as more broken characters than the whole has.
        """
        if len(self._waiting) < WAITING:
            return ""
        for cut in range(len(self._waiting) - SPREAD, 0, -1):
            head, last = self._waiting[:cut], self._waiting[cut - 1]
            tail = self._decode([last, *self._waiting[cut:]])[len(self._decode([last])) :]
            done = self._text(head)
            if done and done + tail == text:
                self._settle(cut)
                return done
        return ""

    def _settle(self, count: int) -> None:
        if count:
            self._before = [self._waiting[count - 1]]
            self._shown = self._decode(self._before)
            self._waiting = self._waiting[count:]


def _byte_pieces(tokenizer: Tokenizer) -> frozenset[int]:
    """The tokens such as <0x0A> that stand for one byte, if this tokenizer reads them so."""
    try:
        letter = tokenizer.token_to_id("<0x41>")
        if tokenizer.decode([letter]) != "A":
            return frozenset()
        return frozenset(tokenizer.token_to_id(f"<0x{byte:02X}>") for byte in range(256))
    except DataError:
        return frozenset()


StopReason = Literal["stop", "length", "end"]  # a stop text, enough tokens, the model's own end


class Token(NamedTuple):
    """One token as it is written; its text is "" while a character or a stop text is unclear."""

    id: int
    text: str
    logprob: float


@dataclass(frozen=True)
class Completion:
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
        self._stream, self._stops = Detokenizer(tokenizer), StopStrings(request.stop)

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

    def generation(self) -> Completion:
        """The finished answer."""
        assert self.stop_reason is not None
        return Completion(
            self.text,
            tuple(self.tokens),
            tuple(self.logprobs),
            self.stop_reason,
            len(self.request.ids),
        )
