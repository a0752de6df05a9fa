"""What of each text the model is asked: its portions as token ids, or why it cannot be asked."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from qkv.engine.translate.marking import Marking
from qkv.engine.translate.portions import Portion, cut, lines
from qkv.errors import DataError
from qkv.text import Tokenizer

Long = Literal["error", "sentences"]
SHOWN = 40  # characters of a text in a message

Ids = Sequence[int]


@dataclass(frozen=True)
class Plan:
    """A text, its portions and their ids without marks; a blank text has none."""

    text: str
    portions: tuple[Portion, ...]
    ids: tuple[Ids, ...]
    remark: str | None = None


def plans(texts: Sequence[str], tokenizer: Tokenizer, marking: Marking, long: Long) -> list[Plan]:
    """How each text is translated: as it is, line by line, or, if need be, by its sentences."""
    cuts = [lines(text) for text in texts]
    encoded = iter(tokenizer.encode_many([line.text for text in cuts for line in text]))
    found = []
    for text, portions in zip(texts, cuts, strict=True):
        ids = [next(encoded) for _ in portions]
        if any(len(line) > marking.room for line in ids):
            found.append(_cut(text, portions, ids, tokenizer, marking, long))
        else:
            found.append(Plan(text, tuple(portions), tuple(ids)))
    return found


def _cut(
    text: str,
    line_portions: Sequence[Portion],
    line_ids: Sequence[Ids],
    tokenizer: Tokenizer,
    marking: Marking,
    long: Long,
) -> Plan:
    """The plan of a text that has a line longer than the model reads."""
    portions, ids, told = list[Portion](), list[Ids](), ""
    for line, whole in zip(line_portions, line_ids, strict=True):
        if len(whole) <= marking.room:
            portions.append(line)
            ids.append(whole)
            continue
        most = f"{len(whole):,} tokens but the model reads at most {marking.room:,}"
        if long == "error":
            raise DataError(
                f"the text {_shown(line.text)} has {most}; shorten it, or have it translated "
                f"sentence by sentence with --long sentences"
            )
        parts = cut(line, lambda part: len(tokenizer.encode(part)) <= marking.room)
        portions += parts
        ids += tokenizer.encode_many([part.text for part in parts])
        told = told or f"{_shown(line.text)} has {most}"
    _refuse_whole(portions, ids, marking.room)
    return Plan(
        text, tuple(portions), tuple(ids), f"{told}; it was translated in {len(ids):,} parts"
    )


def _refuse_whole(portions: Sequence[Portion], ids: Sequence[Ids], room: int) -> None:
    for portion, tokens in zip(portions, ids, strict=True):
        if len(tokens) > room:
            raise DataError(
                f"{_shown(portion.text)} alone has {len(tokens)} tokens but the model reads at "
                f"most {room}; take it out of the text"
            )


def _shown(text: str) -> str:
    return f"“{text[:SHOWN].rstrip()}…”" if len(text) > SHOWN else f"“{text}”"
