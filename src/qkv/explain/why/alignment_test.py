"""How far an alignment is to be trusted: hide the source word that each target word is led to.

How far the target word's log-probability falls, on average over the target, is compared with what
hiding a random source word for each of them does, and the one the alignment calls least likely.
"""

import numpy as np
from numpy.typing import NDArray

from qkv.explain.why.faithfulness import Deletion, Faithfulness, share_beaten

DRAWS = 200  # they cost nothing: every word was hidden already
ANSWER = "the log-probability of a target word"

Numbers = NDArray[np.float64]


def alignment_test(strength: Numbers, moved: Numbers, full: float, seed: int) -> Faithfulness:
    """The test of the alignment that leads each target word to the source word of most strength.

    strength and moved (targets, sources): how strong each link is said to be, and how far the
    target word falls without that source word. full: its log-probability with all of them.
    """
    targets, sources = moved.shape
    rows = np.arange(targets)
    top = float(moved[rows, strength.argmax(axis=1)].mean())
    least = float(moved[rows, strength.argmin(axis=1)].mean())
    drawn = np.random.default_rng(seed).integers(0, sources, size=(DRAWS, targets))
    chance = moved[rows, drawn].mean(axis=1)
    deletion = Deletion(1, top, float(chance.mean()), float(chance.std()), least)
    beaten = share_beaten(top, chance.tolist())
    ways = min(sources**targets, 10**6)
    return Faithfulness(ANSWER, full, (deletion,), DRAWS, beaten, ways, named=1)
