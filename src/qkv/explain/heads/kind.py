"""What a head is called: the pattern that stands out from chance, if one does."""

from dataclasses import dataclass

from qkv.explain.heads.places import BESIDE, BROAD, INDUCTION, MIXED, POSITION, SAME
from qkv.explain.heads.report import Score
from qkv.explain.heads.tally import Mass, Tally

STANDS_OUT = 0.3  # of the weight that chance does not give: then a head is called by it
EVEN = 0.9  # of the possible entropy: then it is broad
OFTEN = 0.5  # of all queries must be able to look so far, for a distance to count


@dataclass(frozen=True)
class Kind:
    """name: what it is called; pattern: the strongest one, whether it stands out or not."""

    name: str
    pattern: str
    score: Score
    offset: int | None


def kind_of(scores: dict[str, Score], offset: int | None, evenness: float) -> Kind:
    """What needs a repeat goes first: such a head may rest elsewhere while nothing comes again."""
    strong = {name: s for name, s in scores.items() if s.excess >= STANDS_OUT}
    best = _best({name: s for name, s in strong.items() if name in (INDUCTION, SAME)} or scores)
    score = scores[best]
    at = offset if best == POSITION else None
    if best in strong:
        return Kind(best, best, score, at)
    if evenness >= EVEN:
        return Kind(BROAD, BROAD, Score(evenness, 1.0, score.queries), None)
    return Kind(MIXED, best, score, at)


def scores_of(tally: Tally, head: int, cross: bool) -> tuple[dict[str, Score], int | None]:
    """Every pattern's score, and at which distance that of "position" is."""
    scores = {name: _score(mass, head) for name, mass in tally.patterns.items() if mass.queries}
    named = () if cross else tuple(BESIDE.values())
    far = {
        step: _score(mass, head)
        for step, mass in tally.distances.items()
        if step not in named and mass.queries >= OFTEN * tally.queries
    }
    if not far:
        return scores, None
    offset = max(far, key=lambda step: (far[step].excess, -abs(step)))
    return scores | {POSITION: far[offset]}, offset


def _best(scores: dict[str, Score]) -> str:
    return max(scores, key=lambda name: scores[name].excess)


def _score(mass: Mass, head: int) -> Score:
    n = mass.queries
    return Score(float(mass.mass[head]) / n, mass.chance / n, n)
