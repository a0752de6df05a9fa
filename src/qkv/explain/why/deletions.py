"""Answers to a text without some of its words; each set of words is asked for once.

Occlusion and the tests of faithfulness ask for many of the same.
"""

from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from qkv.explain.why.faithfulness import Words

Answer = TypeVar("Answer")
CIRCULAR = "occlusion is a deletion itself, so deleting the first word it names only repeats it"


class Deletions(Generic[Answer]):
    """Calls `ask` with those sets that it has not met, all at once, and keeps what comes out."""

    def __init__(self, ask: Callable[[list[Words]], Sequence[Answer]]) -> None:
        self.ask = ask
        self.known: dict[Words, Answer] = {}

    def __call__(self, sets: Sequence[Words]) -> list[Answer]:
        new = [words for words in dict.fromkeys(sets) if words not in self.known]
        if new:
            self.known.update(zip(new, self.ask(new), strict=True))
        return [self.known[words] for words in sets]

    def full(self) -> Answer:
        """The answer to the whole text."""
        return self([frozenset()])[0]

    def one_by_one(self, words: int) -> list[Answer]:
        """The answers without each word by itself."""
        return self([frozenset({word}) for word in range(words)])
