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
from qkv.data.files import decode_lines, is_table, join_or, strip_newline, text_lines
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
from qkv.data.table import has_known_header
from qkv.data.token_cache import cache_folder
from qkv.data.tokenized_texts import (
    BpeDropoutTexts,
    TokenizedTexts,
    encode,
    length_batches,
    padding_fraction,
)

__all__ = [
    "BUILT_IN",
    "BpeDropoutTexts",
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
    "decode_lines",
    "encode",
    "has_known_header",
    "is_table",
    "join_or",
    "length_batches",
    "overlap",
    "padding_fraction",
    "read_labelled",
    "read_lines",
    "read_pairs",
    "read_scored",
    "read_texts",
    "split",
    "split_documents",
    "strip_newline",
    "text_lines",
    "write_built_in",
]
