"""Faithfulness of an attribution: delete the words it ranks highest and see the output move.

Comprehensiveness is how far the output falls without the top-ranked words, sufficiency how far it
falls with only those (DeYoung et al. 2020, "ERASER"). Neither number means anything by itself, so
the same number of words is also deleted at random, many times, and from the bottom of the ranking.

An alignment of a translation is tested in the same way: for each target word the source word it is
aligned to is occluded, and the fall of the target word's log-probability is compared with that of
occluding a random source word, and the one with the weakest link.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import factorial

import numpy as np
from numpy.typing import NDArray

SIGNIFICANCE = 0.95  # the ranking must beat more than this fraction of random ones
MIN_ORDERS = 100  # with fewer distinct rankings, a random one is too often the best one
FRACTIONS = (0.1, 0.2, 0.3, 0.4, 0.5)  # of all words, deleted
SMALL_COUNTS = (1, 2, 3)  # words deleted as well
VERDICT_WORDS = 3  # the verdict quotes the deletion of up to so many words
MAX_COUNTED_WORDS = 9  # 9! orders is far above MIN_ORDERS; larger factorials are of no use
DEFAULT_DRAWS = 20
DEFAULT_SEED = 0
ALIGNMENT_DRAWS = 200  # free of cost: every source word has been occluded already
ALIGNMENT_QUANTITY = "the log-probability of a target word"

FloatArray = NDArray[np.float64]
WordSet = frozenset[int]
Evaluate = Callable[[Sequence[WordSet]], Sequence[float]]  # the output without each set of words


@dataclass(frozen=True)
class Trust:
    """better: whether the ranking beats chance; None if there are too few words to tell."""

    better: bool | None
    verdict: str

    @classmethod
    def of(cls, facts: str, win_rate: float, orders: int, fewest: int, most: int) -> "Trust":
        """The verdict on a ranking, in a sentence that starts with the facts.

        win_rate: the fraction of random rankings it beats. orders: how many distinct rankings
        exist. fewest, most: how many words were deleted.
        """
        if orders < MIN_ORDERS:
            return cls(None, f"{facts}: too few words to tell it from chance")
        counts = f"over {fewest} to {most} words " if most > fewest else ""
        fraction = f"{counts}{win_rate:.0%} of random choices do worse"
        if win_rate > SIGNIFICANCE:
            return cls(True, f"{facts}: better than chance ({fraction})")
        how = "not clearly" if win_rate > 0.5 else "no"
        return cls(False, f"{facts}: {how} better than chance ({fraction}), so do not rely on it")


@dataclass(frozen=True)
class Deletion:
    """How far the output falls when a number of words is deleted; negative if it rises."""

    words: int
    drop: float  # without the top-ranked words
    random_drop: float  # without random words, the mean
    random_std: float
    bottom_drop: float  # without the lowest-ranked words
    only_top_drop: float | None = None  # with nothing but the top-ranked words

    def json(self) -> dict[str, object]:
        return {
            "words": self.words,
            "moved": self.drop,
            "random": self.random_drop,
            "spread": self.random_std,
            "least": self.bottom_drop,
            "kept": self.only_top_drop,
        }


@dataclass(frozen=True)
class Faithfulness:
    """The deletion test of one ranking.

    quantity: the output that is measured, in words. full: its value for the full text. win_rate:
    the fraction of random rankings with a smaller mean drop. orders: how many rankings exist.
    verdict_words: the number of deleted words that the verdict quotes.
    """

    quantity: str
    full: float
    deletions: tuple[Deletion, ...]
    draws: int
    win_rate: float
    orders: int
    verdict_words: int

    @property
    def comprehensiveness(self) -> float:
        """The mean drop over all numbers of deleted words, top-ranked first."""
        return float(np.mean([deletion.drop for deletion in self.deletions]))

    @property
    def random_drop(self) -> float:
        """The same for random words."""
        return float(np.mean([deletion.random_drop for deletion in self.deletions]))

    @property
    def sufficiency(self) -> float | None:
        """The mean drop with only the top-ranked words; near 0 these suffice."""
        drops = [one.only_top_drop for one in self.deletions if one.only_top_drop is not None]
        return float(np.mean(drops)) if drops else None

    @property
    def trust(self) -> Trust:
        """Whether to rely on the ranking."""
        quoted = next(one for one in self.deletions if one.words == self.verdict_words)
        facts = _drop_sentence(self.quantity, quoted)
        fewest = self.deletions[0].words
        most = self.deletions[-1].words
        return Trust.of(facts, self.win_rate, self.orders, fewest, most)

    def json(self) -> dict[str, object]:
        trust = self.trust
        return {
            "answer": self.quantity,
            "full": self.full,
            "comprehensiveness": self.comprehensiveness,
            "sufficiency": self.sufficiency,
            "random": self.random_drop,
            "beaten": self.win_rate,
            "draws": self.draws,
            "better": trust.better,
            "verdict": trust.verdict,
            "deletions": [deletion.json() for deletion in self.deletions],
        }


def faithfulness(
    ranking: Sequence[int],
    evaluate: Evaluate,
    quantity: str,
    draws: int = DEFAULT_DRAWS,
    seed: int = DEFAULT_SEED,
) -> Faithfulness | None:
    """The deletion test of a ranking of all words, most important first; None without words.

    The same seed draws the same random rankings, so rankings of one text can be compared.
    """
    n = len(ranking)
    if not n:
        return None
    counts = deletion_counts(n)
    rng = np.random.default_rng(seed)
    # Rows: the ranking, the reversed ranking, then the random ones.
    orders = [list(ranking), list(ranking)[::-1]]
    orders += [rng.permutation(n).tolist() for _ in range(draws)]
    top_sets = [frozenset(order[:k]) for order in orders for k in counts]
    complements = [frozenset(ranking[k:]) for k in counts]
    # One call, so that all texts without words are evaluated in large batches.
    full, *outputs = evaluate([frozenset(), *top_sets, *complements])
    drops = full - np.array(outputs).reshape(-1, len(counts))  # (orders + 1, counts)
    top = drops[0]
    random = drops[2:-1]
    columns = zip(counts, top, random.mean(0), random.std(0), drops[1], drops[-1], strict=True)
    return Faithfulness(
        quantity=quantity,
        full=full,
        deletions=tuple(Deletion(k, *(float(x) for x in column)) for k, *column in columns),
        draws=draws,
        win_rate=win_rate(float(top.mean()), random.mean(axis=1).tolist()),
        orders=factorial(min(n, MAX_COUNTED_WORDS)),
        verdict_words=min(VERDICT_WORDS, max(1, n // 2)),
    )


def alignment_faithfulness(
    strength: FloatArray, drops: FloatArray, full: float, seed: int
) -> Faithfulness:
    """The deletion test of the alignment of each target word to its strongest source word.

    strength and drops (targets, sources): how strong each link is, and how far the target word's
    log-probability falls without that source word. full: the mean with all of them.
    """
    targets, sources = drops.shape
    rows = np.arange(targets)
    top = float(drops[rows, strength.argmax(axis=1)].mean())
    bottom = float(drops[rows, strength.argmin(axis=1)].mean())
    samples = np.random.default_rng(seed).integers(0, sources, size=(ALIGNMENT_DRAWS, targets))
    random = drops[rows, samples].mean(axis=1)
    return Faithfulness(
        quantity=ALIGNMENT_QUANTITY,
        full=full,
        deletions=(Deletion(1, top, float(random.mean()), float(random.std()), bottom),),
        draws=ALIGNMENT_DRAWS,
        win_rate=win_rate(top, random.tolist()),
        orders=min(sources**targets, 10**6),
        verdict_words=1,
    )


def deletion_counts(n: int) -> list[int]:
    """How many of n words are deleted, in increasing order: a few, and up to half of them."""
    counts = {*SMALL_COUNTS, *(round(fraction * n) for fraction in FRACTIONS)}
    return sorted(k for k in counts if 1 <= k <= max(1, n - 1))


def win_rate(value: float, others: Sequence[float], rounding: float = 1e-7) -> float:
    """The fraction of the others that are smaller; a tie counts half."""
    gaps = value - np.array(others)
    return float(np.where(np.abs(gaps) <= rounding, 0.5, gaps > 0).mean())


def _drop_sentence(quantity: str, deletion: Deletion) -> str:
    if deletion.words == 1:
        top = "the word named"
        random = "a random one"
    else:
        top = f"the {deletion.words} words named"
        random = f"{deletion.words} random ones"
    return (
        f"deleting {top} lowers {quantity} by {_number(deletion.drop)}; {random} by "
        f"{_number(deletion.random_drop)} ± {_number(deletion.random_std)}"
    )


def _number(value: float) -> str:
    """Two decimals, or one significant digit of a smaller number; with a true minus sign."""
    if abs(value) < 1e-9:
        return "0.00"
    digits = f"{value:.2f}" if abs(value) >= 0.01 else f"{value:.1g}"
    return digits.replace("-", "−")
