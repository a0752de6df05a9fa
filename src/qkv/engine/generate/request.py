"""One wish for an answer, in token ids: everything that decides it, as a value."""

import math
import secrets
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Literal, TypedDict, Unpack

import torch
from torch import Tensor

from qkv.engine.batching import inference
from qkv.engine.engine import purpose_of
from qkv.engine.generate.sampling import DEFAULT_SAMPLING, Sampling
from qkv.errors import QkvError, UsageError
from qkv.model import Decoder, Model, NextToken
from qkv.text import Tokenizer
from qkv.text.special_tokens import DEFAULT_SPECIAL_TOKENS

# FOLDED engine/generate/reading: What a model must offer to write text, and how it is asked for
#   its scores.
# FOLDED engine/generate/stopping: Where a text ends because it was about to say something
#   agreed upon.
# FOLDED engine/generate/prompting: Prompts as the model was trained to read them: marks,
#   messages, and what does not fit.

CHUNK = 1024  # tokens of prompts that are read at a time

UNREAD = torch.empty(0)  # lengths, which only outputs that pool the states look at


def expect_writer(model: Model) -> None:
    """Refuses a model that does not say which token follows."""
    if not isinstance(model, Decoder):
        it_is, command = purpose_of(model)
        raise UsageError(f"this model is {it_is}, so it does not write text; use {command}")
    if not isinstance(model.config.output, NextToken):
        kind = model.config.output.kind.replace("_", " ")
        raise UsageError(f"this decoder answers with a {kind}, not with the next token")


def context_length(model: Decoder) -> int:
    """How many tokens the model reads at most."""
    limit = model.decoder.position.limit
    return model.config.length if limit is None else int(limit)


def reading(model: Decoder) -> AbstractContextManager[None]:
    """Inside, nothing is dropped at random and no gradient is kept."""
    return inference(model) if model.training else torch.inference_mode()


def last_token_logits(model: Decoder, states: Tensor, vocabulary: int) -> Tensor:
    """The scores of the token after the last position, (B, V) float32.

    Only tokens that the tokenizer knows: a table may have rows to spare.
    """
    return token_logits(model, states[:, -1:], vocabulary)[:, 0]


def token_logits(model: Decoder, states: Tensor, vocabulary: int) -> Tensor:
    """The scores of the token after each position, (B, T, V) float32."""
    scores: Tensor = model.output(states, UNREAD, model.embedding.weight)
    return scores[..., :vocabulary].float()


class StopStrings:
    """Lets text through up to the first stop text, and never the beginning of one too early."""

    def __init__(self, stops: Sequence[str]) -> None:
        check_stops(stops)
        self._stops = tuple(stops)
        self._longest = max(map(len, self._stops), default=0)
        self._held = ""

    def push(self, piece: str) -> tuple[str, bool]:
        """The text that may be shown now, and whether a stop text was reached behind it."""
        if not self._stops or not piece:
            return piece, False
        text = self._held + piece
        places = [place for stop in self._stops if (place := text.find(stop)) >= 0]
        if places:
            self._held = ""
            return text[: min(places)], True
        held = self._beginning(text)
        self._held = text[len(text) - held :]
        return text[: len(text) - held], False

    def finish(self) -> str:
        """What was held back: it did not become a stop text."""
        held, self._held = self._held, ""
        return held

    def _beginning(self, text: str) -> int:
        """How many of the last characters could be the beginning of a stop text."""
        for count in range(min(self._longest - 1, len(text)), 0, -1):
            end = text[len(text) - count :]
            if any(stop.startswith(end) for stop in self._stops):
                return count
        return 0


def check_stops(stops: Sequence[str]) -> None:
    if isinstance(stops, str):
        raise UsageError(f'stop takes a list of texts, such as ["{stops[:20]}"], not one text')
    if "" in stops:
        raise UsageError("a stop text is empty, so nothing could ever be written; leave it out")


@dataclass(frozen=True)
class Request:
    """A prompt and how it is to be answered.

    seed and number: answers to one request that differ in number are drawn independently.
    ends: tokens that end the answer. stop: texts that end it, for whoever reads the text.
    """

    ids: tuple[int, ...]
    max_tokens: int
    sampling: Sampling = DEFAULT_SAMPLING
    seed: int = 0
    number: int = 0
    ends: frozenset[int] = frozenset()
    stop: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.ids:
            raise UsageError("the prompt has no tokens; a model needs one to start from")
        if self.max_tokens < 1:
            raise UsageError(f"max_tokens={self.max_tokens} must be 1 or more")
        if not isinstance(self.sampling, Sampling):
            raise UsageError(
                f"sampling is a {type(self.sampling).__name__}; use Sampling.of(temperature=…)"
            )
        check_stops(self.stop)

    @property
    def room(self) -> int:
        """The positions it may come to need."""
        return len(self.ids) + self.max_tokens

    def check(self, model: Decoder) -> None:
        """Refuses what this model cannot read."""
        limit, vocabulary = context_length(model), model.config.embedding.vocabulary
        if len(self.ids) >= limit:
            raise UsageError(too_long(len(self.ids), limit))
        if self.room > limit:
            raise UsageError(
                f"the prompt has {len(self.ids)} tokens and max_tokens={self.max_tokens}, but the "
                f"model reads at most {limit}; ask for at most {limit - len(self.ids)}"
            )
        wrong = next((id for id in self.ids if not 0 <= id < vocabulary), None)
        if wrong is not None:
            raise UsageError(f"token {wrong} does not exist; the model has 0 to {vocabulary - 1}")


def too_long(tokens: int, limit: int) -> str:
    """The sentence for a prompt that leaves no room for an answer."""
    if tokens == limit:
        return (
            f"the prompt has {tokens} tokens, all that the model reads, so none is left for an "
            f"answer; shorten it or pass --truncate left"
        )
    return (
        f"prompt has {tokens} tokens but the model reads at most {limit}; "
        f"shorten it or pass --truncate left"
    )


def expect_finite(total: float) -> None:
    """Refuses to choose from scores that are no numbers."""
    if not math.isfinite(total):
        raise QkvError(
            "the model's scores for the next token are not finite; its weights are damaged, or "
            "this prompt drives them out of range"
        )


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
        ids, limit = self.ids(prompt), context_length(self.model)
        if truncate == "left":
            ids = self._cut(ids, limit, max_tokens)
        if len(ids) > limit:
            raise UsageError(too_long(len(ids), limit))
        if max_tokens is None:
            max_tokens = max(1, min(ENOUGH, limit - len(ids)))
        seed = secrets.randbits(32) if seed is None else seed
        ends = frozenset(self.tokenizer.eos_ids)
        sampling = options.get("sampling", DEFAULT_SAMPLING)
        asked = Request(tuple(ids), max_tokens, sampling, seed, number, ends, tuple(stop))
        asked.check(self.model)
        return asked

    def ids(self, prompt: Prompt) -> list[int]:
        """The prompt as ids, with the marks that stand before a text in training."""
        t = self.tokenizer
        if not isinstance(prompt, str):
            if not prompt:
                raise UsageError("a chat has no messages; give one of the user at least")
            return t.encode(t.apply_chat_template(prompt), parse_special=True)
        return [*t.prefix_ids, *t.encode(prompt)] or [self._nothing()]

    def _nothing(self) -> int:
        """What a text without a beginning starts from.

        Our own language models have met no start mark: they go on from the end of another text,
        as their training's samples do.
        """
        t = self.tokenizer
        if t.special_tokens == DEFAULT_SPECIAL_TOKENS:
            return t.eos_id
        if t.special_tokens.bos is None:
            raise UsageError("the prompt is empty and this model has no start mark; give a text")
        return t.bos_id

    def _cut(self, ids: list[int], limit: int, max_tokens: int | None) -> list[int]:
        if max_tokens is None and len(ids) < limit:
            return ids
        answer = min(ENOUGH, limit // 2) if max_tokens is None else max_tokens
        room, marks = limit - answer, len(self.tokenizer.prefix_ids)
        if len(ids) <= room:
            return ids
        if room <= marks:
            raise UsageError(
                f"max_tokens={answer} leaves no room for a prompt: the model reads at most {limit}"
            )
        begins = tuple(ids[:marks]) == self.tokenizer.prefix_ids
        kept = self.tokenizer.prefix_ids if begins else ()
        return [*kept, *ids[len(ids) - room + len(kept) :]]
