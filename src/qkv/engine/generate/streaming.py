"""Tokens to text as they come: incremental detokenization and stop strings.

Neither shows text too early: a character waits for its last byte, and the beginning of a stop
string waits until it is clear whether the rest of it follows.
"""

from collections.abc import Sequence

from qkv.engine.generate.request import check_stop_strings
from qkv.errors import DataError
from qkv.text import Tokenizer

REPLACEMENT = "\ufffd"  # what bytes that are no UTF-8 decode to

UTF8_TRAIL = 3  # a character has 4 bytes at most, so after its first up to 3 more tokens

MAX_PENDING = 8  # pending tokens before it is worth finding out which of them are settled


class Detokenizer:
    """The text of ids that come one by one, never half a character.

    The pieces joined are exactly what the tokenizer decodes from all ids at once, whatever it does
    at the first token and where tokens meet. Only a short window is decoded per token: the pending
    ids, and the one before them.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._decode = tokenizer.decode
        self._special_ids = tokenizer.special_ids
        self._byte_ids = _byte_fallback_ids(tokenizer)
        self._pending: list[int] = []
        # The last token whose text is out, so that the pending ones are not decoded as if they
        # were the beginning of a text; and what it decodes to by itself.
        self._context: list[int] = []
        self._context_text = ""

    def push(self, id: int) -> str:
        """The text that is certain now; "" while a character is incomplete."""
        if id in self._special_ids and not self._decode([id]):
            return ""
        self._pending.append(id)
        if id in self._byte_ids:
            # A run of byte tokens decodes as a whole or, if any byte is invalid, not at all.
            return ""
        text = self._text(self._pending)
        if text.endswith(REPLACEMENT):
            return self._settled_text(text)
        if text:
            self._settle(len(self._pending))
        return text

    def finish(self) -> str:
        """The text still pending when no more tokens come."""
        text = self._text(self._pending)
        self._settle(len(self._pending))
        return text

    def _text(self, ids: list[int]) -> str:
        return self._decode(self._context + ids)[len(self._context_text) :]

    def _settled_text(self, text: str) -> str:
        """The beginning that no further byte can change, once many tokens are pending.

        Splitting inside a character gives more replacement characters than `text` has, so a split
        whose halves decode to exactly `text` is between characters.
        """
        if len(self._pending) < MAX_PENDING:
            return ""
        for split in range(len(self._pending) - UTF8_TRAIL, 0, -1):
            last = self._pending[split - 1]
            head = self._text(self._pending[:split])
            tail = self._decode([last, *self._pending[split:]])[len(self._decode([last])) :]
            if head and head + tail == text:
                self._settle(split)
                return head
        return ""

    def _settle(self, count: int) -> None:
        if count:
            self._context = [self._pending[count - 1]]
            self._context_text = self._decode(self._context)
            self._pending = self._pending[count:]


def space_before(tokenizer: Tokenizer, prompt_ids: Sequence[int], first: int) -> str:
    """What stands between a prompt and its completion, whose first token is `first`.

    SentencePiece drops the space in front of a text's first word, and so in front of a completion.
    """
    last = prompt_ids[-1]
    before = tokenizer.decode([last])
    alone = tokenizer.decode([first])
    after = tokenizer.decode([last, first]).removeprefix(before)
    if before and after.endswith(alone) and after[: len(after) - len(alone)].isspace():
        return after[: len(after) - len(alone)]
    return ""


class StopStrings:
    """Passes text on up to the first stop string, holding back what may be the start of one."""

    def __init__(self, stop: Sequence[str]) -> None:
        check_stop_strings(stop)
        self._stop = tuple(stop)
        self._longest = max(map(len, self._stop), default=0)
        self._buffer = ""

    def push(self, piece: str) -> tuple[str, bool]:
        """The text that may be shown now, and whether a stop string follows it."""
        if not self._stop or not piece:
            return piece, False
        text = self._buffer + piece
        matches = [text.find(stop) for stop in self._stop if stop in text]
        if matches:
            self._buffer = ""
            return text[: min(matches)], True
        end = len(text) - self._partial_match(text)
        self._buffer = text[end:]
        return text[:end], False

    def finish(self) -> str:
        """The text held back that did not become a stop string."""
        text = self._buffer
        self._buffer = ""
        return text

    def _partial_match(self, text: str) -> int:
        """How many of the last characters could be the beginning of a stop string."""
        for count in range(min(self._longest - 1, len(text)), 0, -1):
            suffix = text[len(text) - count :]
            if any(stop.startswith(suffix) for stop in self._stop):
                return count
        return 0


def _byte_fallback_ids(tokenizer: Tokenizer) -> frozenset[int]:
    """The tokens such as <0x0A> that stand for one byte, if this tokenizer decodes them so."""
    try:
        letter = tokenizer.token_to_id("<0x41>")
        if tokenizer.decode([letter]) != "A":
            return frozenset()
        return frozenset(tokenizer.token_to_id(f"<0x{byte:02X}>") for byte in range(256))
    except DataError:
        return frozenset()
