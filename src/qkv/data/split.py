"""Held-out examples: which ones they are, and whether training has seen them after all."""

import random
from collections.abc import Iterable, Sequence
from typing import TypeVar

from qkv.errors import DataError

T = TypeVar("T")


def split(items: Sequence[T], seed: int, share: float = 0.1) -> tuple[list[T], list[T]]:
    """The items to train on and those held out, each in their old order.

    A pure function of its arguments. However small the share, each side gets an item.
    """
    held = held_out_places(len(items), seed, share)
    return (
        [item for i, item in enumerate(items) if i not in held],
        [item for i, item in enumerate(items) if i in held],
    )


def held_out_places(count: int, seed: int, share: float) -> set[int]:
    """Which of so many items `split` holds out, counted from 0."""
    check_share(share)
    if count < 2:
        raise DataError(
            f"cannot hold anything out of {count} example{'' if count == 1 else 's'}; "
            "two are needed at least"
        )
    held = min(max(round(count * share), 1), count - 1)
    return set(random.Random(seed).sample(range(count), held))


def check_share(share: float) -> None:
    if not 0 < share < 1:
        raise DataError(f"the share to hold out must lie between 0 and 1, not at {share}")


def overlap(train: Iterable[str], held_out: Iterable[str]) -> list[str]:
    """The held-out texts that also stand in training, each once, as it is first held out.

    Texts that differ only in their white space are the same text.
    """
    firsts: dict[str, str] = {}
    for text in held_out:
        firsts.setdefault(_folded(text), text)
    leaked = {folded for text in train if (folded := _folded(text)) in firsts}
    return [text for folded, text in firsts.items() if folded in leaked]


def _folded(text: str) -> str:
    return " ".join(text.split())
