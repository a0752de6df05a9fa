"""Texts as an encoder reads them, and what becomes of those that are longer than it reads."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

from qkv.errors import DataError, UsageError, unknown
from qkv.text import Tokenizer
from qkv.text.words import refuse_half_characters

Long = Literal["error", "truncate", "average"]
LONG: tuple[str, ...] = get_args(Long)


@dataclass(frozen=True)
class Windows:
    """The ids of texts that fit, and those of the windows of the others.

    They are asked for apart, so that what is said of a text that fits does not depend on what is
    done with the others.
    """

    fitting: list[list[int]]
    places: list[int]  # which texts they are
    windows: list[list[int]]
    owners: list[int]  # which text each window is of
    tokens: list[int]  # of the text in each window, marks aside

    @property
    def long(self) -> int:
        """How many texts do not fit."""
        return len(set(self.owners))

    def ask(self, answer: Callable[[list[list[int]]], Tensor], width: int) -> Tensor:
        """An answer for each text (N, width), in float64: of windows the mean, by their tokens."""
        found = torch.zeros(len(self.places) + self.long, width, dtype=torch.float64)
        if self.fitting:
            found[self.places] = answer(self.fitting).double()
        if self.windows:
            owners, tokens = torch.tensor(self.owners), torch.tensor(self.tokens).double()
            totals = torch.zeros(len(found)).double().index_add_(0, owners, tokens)
            shares = tokens / totals[owners]
            found.index_add_(0, owners, answer(self.windows).double() * shares[:, None])
        return found


def read(
    tokenizer: Tokenizer, texts: Sequence[str], reads: int, long: Long, first: int = 1
) -> Windows:
    """The texts with the tokenizer's marks around, for a model that reads so many tokens.

    A longer one is refused, cut, or taken in windows of that length, without overlap and each
    with its marks. `first` is the number of the first text, for the message.
    """
    if long not in LONG:
        raise UsageError(unknown("way with long texts", long, LONG))
    marks = len(tokenizer.wrap((), reads))
    room = reads - marks
    if room < 1:
        raise DataError(f"the model reads {reads} tokens, which the {marks} marks of a text fill")
    made = Windows([], [], [], [], [])
    for place, ids in enumerate(_encoded(tokenizer, texts, first)):
        if len(ids) <= room:
            made.fitting.append(tokenizer.wrap(ids, reads))
            made.places.append(place)
            continue
        if long == "error":
            raise DataError(_too_long(first + place, len(ids), room))
        for begin in range(0, len(ids) if long == "average" else 1, room):
            window = ids[begin : begin + room]
            made.windows.append(tokenizer.wrap(window, reads))
            made.owners.append(place)
            made.tokens.append(len(window))
    return made


def _encoded(tokenizer: Tokenizer, texts: Sequence[str], first: int) -> list[list[int]]:
    try:
        return tokenizer.encode_many(texts)
    except DataError:
        for number, text in enumerate(texts, first):
            try:
                refuse_half_characters(text)
            except DataError as error:
                raise DataError(f"text {number:,}: {error}") from None
        raise


def _too_long(number: int, tokens: int, room: int) -> str:
    return (
        f"text {number:,} has {tokens:,} tokens but the model reads at most {room:,}; shorten it, "
        f"or pass --long truncate (its beginning) or --long average (all of it, in windows)"
    )
