"""Texts, labelled texts and pairs: read from people's files, split, or made from what is at hand.

No torch here; what comes out are plain strings.
"""

from qkv.data.built_in import BUILT_IN, built_in, check_place, write_built_in
from qkv.data.examples import Labelled, Pair
from qkv.data.read import read_labelled, read_pairs, read_texts
from qkv.data.split import overlap, split

__all__ = [
    "BUILT_IN",
    "Labelled",
    "Pair",
    "built_in",
    "check_place",
    "overlap",
    "read_labelled",
    "read_pairs",
    "read_texts",
    "split",
    "write_built_in",
]
