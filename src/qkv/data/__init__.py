"""Texts, labelled texts and pairs: read from people's files, split, encoded, or made here.

No torch here; what comes out are plain strings, and arrays of token ids.
"""

from qkv.data.built_in import BUILT_IN, built_in, check_place, write_built_in
from qkv.data.documents import Documents, Part, Piece, overlap, part, split
from qkv.data.encoded import Encoded, encode
from qkv.data.read import (
    Labelled,
    Pair,
    ScoredPair,
    read_labelled,
    read_lines,
    read_pairs,
    read_scored,
    read_texts,
)
from qkv.data.token_cache import cache_folder

__all__ = [
    "BUILT_IN",
    "Documents",
    "Encoded",
    "Labelled",
    "Pair",
    "Part",
    "Piece",
    "ScoredPair",
    "built_in",
    "cache_folder",
    "check_place",
    "encode",
    "overlap",
    "part",
    "read_labelled",
    "read_lines",
    "read_pairs",
    "read_scored",
    "read_texts",
    "split",
    "write_built_in",
]
