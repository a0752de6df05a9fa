"""Texts, labelled texts and pairs: read from people's files, split, encoded, or made here.

No torch here; what comes out are plain strings, and arrays of token ids.
"""

from qkv.data.built_in import BUILT_IN, built_in, check_output_path, write_built_in
from qkv.data.documents import (
    DocumentChunk,
    Documents,
    DocumentSplit,
    overlap,
    split,
    split_documents,
)
from qkv.data.read import (
    LabelledText,
    Pair,
    ScoredPair,
    read_labelled,
    read_lines,
    read_pairs,
    read_scored,
    read_texts,
)
from qkv.data.token_cache import cache_folder
from qkv.data.tokenized_texts import TokenizedTexts, encode

__all__ = [
    "BUILT_IN",
    "DocumentChunk",
    "DocumentSplit",
    "Documents",
    "LabelledText",
    "Pair",
    "ScoredPair",
    "TokenizedTexts",
    "built_in",
    "cache_folder",
    "check_output_path",
    "encode",
    "overlap",
    "read_labelled",
    "read_lines",
    "read_pairs",
    "read_scored",
    "read_texts",
    "split",
    "split_documents",
    "write_built_in",
]
