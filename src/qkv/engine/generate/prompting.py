"""Prompts as the model was trained to read them: marks, messages, and what does not fit."""

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypedDict, Unpack

from qkv.engine.generate.reading import expect_writer, reach
from qkv.engine.generate.request import Request, too_long
from qkv.engine.generate.sampling import USUAL, Sampling
from qkv.engine.generate.stopping import check_stops
from qkv.errors import UsageError
from qkv.model import Decoder
from qkv.text import Tokenizer
from qkv.text.marks import OWN

Prompt = str | Sequence[Mapping[str, str]]  # a text to go on with, or the messages of a chat
Truncate = Literal["left"] | None
ENOUGH = 200  # tokens of an answer, if nothing is said


class Options(TypedDict, total=False):
    """How a prompt is to be answered; whatever is left out is as usual.

    max_tokens: as many as usual, or as there is room for, if not given.
    seed: a random one if not given.
    stop: texts before which the answer ends.
    truncate: "left" forgets the beginning of a prompt that leaves no room; without it such a
    prompt is refused.
    """

    max_tokens: int | None
    sampling: Sampling
    seed: int | None
    stop: Sequence[str]
    truncate: Truncate


@dataclass(frozen=True)
class Prompter:
    """Makes requests for one model."""

    model: Decoder
    tokenizer: Tokenizer

    def __post_init__(self) -> None:
        expect_writer(self.model)

    def request(self, prompt: Prompt, number: int = 0, **options: Unpack[Options]) -> Request:
        """What is asked for, refused if it does not fit the model.

        number: answers to one prompt that differ in this are drawn independently.
        """
        max_tokens, seed = options.get("max_tokens"), options.get("seed")
        truncate, stop = options.get("truncate"), options.get("stop", ())
        check_stops(stop)
        if truncate not in (None, "left"):
            raise UsageError(
                f'cannot truncate a prompt on the side "{truncate}": only "left" is known, which '
                "forgets its beginning"
            )
        ids, limit = self.ids(prompt), reach(self.model)
        if truncate == "left":
            ids = self._cut(ids, limit, max_tokens)
        if len(ids) > limit:
            raise UsageError(too_long(len(ids), limit))
        if max_tokens is None:
            max_tokens = max(1, min(ENOUGH, limit - len(ids)))
        seed = secrets.randbits(32) if seed is None else seed
        ends = frozenset(self.tokenizer.stops)
        sampling = options.get("sampling", USUAL)
        asked = Request(tuple(ids), max_tokens, sampling, seed, number, ends, tuple(stop))
        asked.check(self.model)
        return asked

    def ids(self, prompt: Prompt) -> list[int]:
        """The prompt as ids, with the marks that stand before a text in training."""
        t = self.tokenizer
        if not isinstance(prompt, str):
            if not prompt:
                raise UsageError("a chat has no messages; give one of the user at least")
            return t.encode(t.chat(prompt), special=True)
        return [*t.before, *t.encode(prompt)] or [self._nothing()]

    def _nothing(self) -> int:
        """What a text without a beginning starts from.

        Our own language models have met no start mark: they go on from the end of another text,
        as their training's samples do.
        """
        t = self.tokenizer
        if t.marks == OWN:
            return t.end
        if t.marks.start is None:
            raise UsageError("the prompt is empty and this model has no start mark; give a text")
        return t.start

    def _cut(self, ids: list[int], limit: int, max_tokens: int | None) -> list[int]:
        if max_tokens is None and len(ids) < limit:
            return ids
        answer = min(ENOUGH, limit // 2) if max_tokens is None else max_tokens
        room, marks = limit - answer, len(self.tokenizer.before)
        if len(ids) <= room:
            return ids
        if room <= marks:
            raise UsageError(
                f"max_tokens={answer} leaves no room for a prompt: the model reads at most {limit}"
            )
        begins = tuple(ids[:marks]) == self.tokenizer.before
        kept = self.tokenizer.before if begins else ()
        return [*kept, *ids[len(ids) - room + len(kept) :]]
