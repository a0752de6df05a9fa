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
from qkv.data.files import (
    CONVERSION_HINTS,
    TABLE_SUFFIXES,
    decode_lines,
    is_table,
    join_or,
    strip_newline,
    text_lines,
)
from qkv.data.problems import BadRows, label_remarks
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
from qkv.data.records import Column, Record, Records, RowQueue, open_table, text_records
from qkv.data.table import has_known_header, json_value, require_pyarrow
from qkv.data.token_cache import cache_folder
from qkv.data.tokenized_texts import (
    BpeDropoutTexts,
    TokenizedTexts,
    encode,
    length_batches,
    padding_fraction,
)
from qkv.data.write_table import (
    TableOutput,
    add_columns,
    arrow_arrays,
    arrow_fields,
    check_table_path,
    table_output,
    write_rows,
)

__all__ = [
    "BUILT_IN",
    "CONVERSION_HINTS",
    "TABLE_SUFFIXES",
    "BadRows",
    "BpeDropoutTexts",
    "Column",
    "DocumentChunk",
    "DocumentSplit",
    "Documents",
    "LabelledText",
    "Pair",
    "Record",
    "Records",
    "RowQueue",
    "ScoredPair",
    "TableOutput",
    "TokenizedTexts",
    "add_columns",
    "arrow_arrays",
    "arrow_fields",
    "built_in",
    "cache_folder",
    "check_output_path",
    "check_table_path",
    "decode_lines",
    "encode",
    "has_known_header",
    "is_table",
    "join_or",
    "json_value",
    "label_remarks",
    "length_batches",
    "open_table",
    "overlap",
    "padding_fraction",
    "read_labelled",
    "read_lines",
    "read_pairs",
    "read_scored",
    "read_texts",
    "require_pyarrow",
    "split",
    "split_documents",
    "strip_newline",
    "table_output",
    "text_lines",
    "text_records",
    "write_built_in",
    "write_rows",
]
