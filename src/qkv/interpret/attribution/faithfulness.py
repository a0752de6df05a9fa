"""How far an explanation can be trusted: delete what it calls important and see the answer move.

Comprehensiveness is how far the answer falls without the words at the top of a ranking, sufficiency
how far it falls with nothing but those (DeYoung et al. 2020, "ERASER"). Neither means anything by
itself: the same number of words is deleted at random, again and again, and from the bottom.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from math import factorial

import numpy as np
from numpy.typing import NDArray

# FOLDED explain/why/trust: The sentence that says how far to trust a ranking, in plain words
#   and with its numbers.
# FOLDED explain/why/alignment_test: How far an alignment is to be trusted: hide the source word
#   that each target word is led to.
#
#   How far the target word's log-probability falls, on average over the target, is compared
#   with what
#   hiding a random source word for each of them does, and the one the alignment calls least
#   likely.

SURE = 0.95  # more of the random choices than that must move the answer less

ENOUGH = 100  # different choices; with fewer even the best is among the random ones too often


@dataclass(frozen=True)
class Trust:
    """better: True, False, or None if there are too few words to tell."""

    better: bool | None
    verdict: str

    @classmethod
    def of(cls, facts: str, beaten: float, ways: int, least: int, most: int) -> "Trust":
        """From a sentence of facts and the share of random choices that move the answer less.

        ways: how many choices there are. least, most: how many words were deleted.
        """
        if ways < ENOUGH:
            return cls(None, f"{facts}: too few words to tell it from chance")
        over = f"over {least} to {most} words " if most > least else ""
        share = f"{over}{beaten:.0%} of random choices do worse"
        if beaten > SURE:
            return cls(True, f"{facts}: better than chance ({share})")
        how = "not clearly" if beaten > 0.5 else "no"
        return cls(False, f"{facts}: {how} better than chance ({share}), so do not rely on it")


def fall(answer: str, words: int, moved: float, random: float, spread: float) -> str:
    """How far the answer falls without the words named, and without as many random ones."""
    named = "the word named" if words == 1 else f"the {words} words named"
    drawn = "a random one" if words == 1 else f"{words} random ones"
    return (
        f"deleting {named} lowers {answer} by {figure(moved)}; {drawn} by {figure(random)} ± "
        f"{figure(spread)}"
    )


def figure(value: float) -> str:
    """Two decimals, or one figure of what is smaller; a true minus sign."""
    if abs(value) < 1e-9:
        return "0.00"
    shown = f"{value:.2f}" if abs(value) >= 0.01 else f"{value:.1g}"
    return shown.replace("-", "−")


SHARES = (0.1, 0.2, 0.3, 0.4, 0.5)  # of all words

FEW = (1, 2, 3)

DRAWS, SEED = 20, 0

Words = frozenset[int]

Answers = Callable[[Sequence[Words]], Sequence[float]]  # the answer without each set of words


@dataclass(frozen=True)
class Deletion:
    """How far the answer falls when so many words are deleted; below 0 it rises."""

    words: int
    moved: float  # the most important ones
    random: float  # random ones, on average
    spread: float  # the standard deviation of those
    least: float  # the least important ones
    kept: float | None = None  # all but the most important ones

    def json(self) -> dict[str, object]:
        return asdict(self)


@dataclass(frozen=True)
class Faithfulness:
    """What became of the answer as the words of one ranking were deleted.

    `answer` says in words what was measured, `full` is its value for the whole text. `beaten` is
    the share of random orders that move it less, over all numbers of words together.
    """

    answer: str
    full: float
    deletions: tuple[Deletion, ...]
    draws: int
    beaten: float
    ways: int  # different orders there are: with a handful chance does as well
    named: int  # which deletion the verdict speaks of: its number of words

    @property
    def comprehensiveness(self) -> float:
        """The mean fall over all numbers of words, most important first."""
        return float(np.mean([one.moved for one in self.deletions]))

    @property
    def random(self) -> float:
        """The same for words drawn at random."""
        return float(np.mean([one.random for one in self.deletions]))

    @property
    def sufficiency(self) -> float | None:
        """The mean fall with nothing but the most important words; near 0 they are enough."""
        kept = [one.kept for one in self.deletions if one.kept is not None]
        return float(np.mean(kept)) if kept else None

    @property
    def trust(self) -> Trust:
        """Whether to believe the ranking, and the sentence that says so."""
        one = next(one for one in self.deletions if one.words == self.named)
        facts = fall(self.answer, one.words, one.moved, one.random, one.spread)
        counts = [one.words for one in self.deletions]
        return Trust.of(facts, self.beaten, self.ways, counts[0], counts[-1])

    def json(self) -> dict[str, object]:
        return {
            "answer": self.answer,
            "full": self.full,
            "comprehensiveness": self.comprehensiveness,
            "sufficiency": self.sufficiency,
            "random": self.random,
            "beaten": self.beaten,
            "draws": self.draws,
            "better": self.trust.better,
            "verdict": self.trust.verdict,
            "deletions": [one.json() for one in self.deletions],
        }


def faithfulness(
    ranking: Sequence[int], answers: Answers, answer: str, draws: int = DRAWS, seed: int = SEED
) -> Faithfulness | None:
    """The test of a ranking of all words, the most important first; None if there is no word.

    The same seed draws the same words, so that rankings of one text can be compared.
    """
    n = len(ranking)
    if not n:
        return None
    counts = deletion_counts(n)
    rng = np.random.default_rng(seed)
    orders = [list(ranking), list(ranking)[::-1]]
    orders += [rng.permutation(n).tolist() for _ in range(draws)]
    sets = [frozenset(order[:k]) for order in orders for k in counts]
    kept = [frozenset(ranking[k:]) for k in counts]
    full, *found = answers([frozenset(), *sets, *kept])
    fell = full - np.array(found).reshape(-1, len(counts))  # (orders + 1, numbers of words)
    top, bottom, alone, chance = fell[0], fell[1], fell[-1], fell[2:-1]
    rows = zip(counts, top, chance.mean(0), chance.std(0), bottom, alone, strict=True)
    deletions = tuple(Deletion(k, *(float(x) for x in row)) for k, *row in rows)
    named = min(FEW[-1], max(1, n // 2))
    beaten = win_rate(float(top.mean()), chance.mean(axis=1).tolist())
    return Faithfulness(answer, full, deletions, draws, beaten, factorial(min(n, 9)), named)


def deletion_counts(n: int) -> list[int]:
    """How many of n words are deleted, one after the other: a few, and up to half of them."""
    asked = {*FEW, *(round(share * n) for share in SHARES)}
    return sorted(k for k in asked if 1 <= k <= max(1, n - 1))


def win_rate(mine: float, others: Sequence[float], rounding: float = 1e-7) -> float:
    """The share of the others that are smaller; one that is equal counts half."""
    gaps = mine - np.array(others)
    return float(np.where(np.abs(gaps) <= rounding, 0.5, gaps > 0).mean())


ALIGNMENT_DRAWS = 200  # they cost nothing: every word was hidden already

ANSWER = "the log-probability of a target word"

Numbers = NDArray[np.float64]


def alignment_faithfulness(
    strength: Numbers, moved: Numbers, full: float, seed: int
) -> Faithfulness:
    """The test of the alignment that leads each target word to the source word of most strength.

    strength and moved (targets, sources): how strong each link is said to be, and how far the
    target word falls without that source word. full: its log-probability with all of them.
    """
    targets, sources = moved.shape
    rows = np.arange(targets)
    top = float(moved[rows, strength.argmax(axis=1)].mean())
    least = float(moved[rows, strength.argmin(axis=1)].mean())
    drawn = np.random.default_rng(seed).integers(0, sources, size=(ALIGNMENT_DRAWS, targets))
    chance = moved[rows, drawn].mean(axis=1)
    deletion = Deletion(1, top, float(chance.mean()), float(chance.std()), least)
    beaten = win_rate(top, chance.tolist())
    ways = min(sources**targets, 10**6)
    return Faithfulness(ANSWER, full, (deletion,), ALIGNMENT_DRAWS, beaten, ways, named=1)
