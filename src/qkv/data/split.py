"""Held-out examples: which ones they are, and whether training has seen them after all."""

import random
from collections.abc import Sequence
from typing import TypeVar

from qkv.errors import DataError

T = TypeVar("T")


def split(items: Sequence[T], seed: int, share: float = 0.1) -> tuple[list[T], list[T]]:
    """The items to train on and those held out, each in their old order.

    A pure function of its arguments. However small the share, each side gets an item.
    """
    if not 0 < share < 1:
        raise DataError(f"the share to hold out must lie between 0 and 1, not at {share}")
    if len(items) < 2:
        raise DataError(
            f"cannot hold anything out of {len(items)} example{'' if len(items) == 1 else 's'}; "
            "two are needed at least"
        )
    count = min(max(round(len(items) * share), 1), len(items) - 1)
    held = set(random.Random(seed).sample(range(len(items)), count))
    return (
        [item for i, item in enumerate(items) if i not in held],
        [item for i, item in enumerate(items) if i in held],
    )


def overlap(train: Sequence[str], held_out: Sequence[str]) -> list[str]:
    """The held-out texts that also stand in training, each once, as it is first held out.

    Texts that differ only in their white space are the same text.
    """
    seen = {_folded(text) for text in train}
    leaked: dict[str, str] = {}
    for text in held_out:
        if (folded := _folded(text)) in seen:
            leaked.setdefault(folded, text)
    return list(leaked.values())


def _folded(text: str) -> str:
    return " ".join(text.split())
