"""What a translator says of one text, and the other ways it would have put it."""

from dataclasses import dataclass
from typing import Literal

from qkv.engine.translate.alignment import Link

StopReason = Literal["end", "length"]


@dataclass(frozen=True)
class Alternative:
    """One way to put a text."""

    text: str
    score: float  # Σ log p of its tokens ÷ their number ^ length penalty: what ways are compared by
    stop_reason: StopReason


@dataclass(frozen=True)
class Translation:
    """The best way that was found to put a text.

    A text that is empty, or nothing but spaces, has an empty one, which ends with a score of 0.
    """

    source: str
    text: str
    score: float
    stop_reason: StopReason  # "length" if any part of it had to be stopped
    alternatives: tuple[Alternative, ...]  # best first, the translation itself among them
    alignment: tuple[Link, ...] | None = None
    remark: str | None = None  # what a person should know of how it was made, if anything
