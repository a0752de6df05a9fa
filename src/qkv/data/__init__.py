"""Texts, labelled texts and pairs: read from people's files, split, encoded, or made here.

No torch here; what comes out are plain strings, and arrays of token ids.
"""

from qkv.data.built_in import BUILT_IN, built_in, check_place, write_built_in
from qkv.data.documents import Documents
from qkv.data.encoded import Encoded, encode
from qkv.data.examples import Labelled, Pair, ScoredPair
from qkv.data.part import Part, part
from qkv.data.pieces import Piece
from qkv.data.read import read_labelled, read_lines, read_pairs, read_scored, read_texts
from qkv.data.split import overlap, split
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
