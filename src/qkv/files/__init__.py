"""Files of strangers: ordinary ones, read whole, or refused in one line before they do harm."""

from qkv.files.safe_io import (
    LARGEST,
    SMALL,
    is_there,
    listed,
    one_line,
    open_ordinary,
    read_bytes,
    read_text,
    reason,
    replace_file,
    shown,
    unwritten,
    within,
)
from qkv.files.strict_json import Walk, parse_json, read_json, read_json_list

__all__ = [
    "LARGEST",
    "SMALL",
    "Walk",
    "is_there",
    "listed",
    "one_line",
    "open_ordinary",
    "parse_json",
    "read_bytes",
    "read_json",
    "read_json_list",
    "read_text",
    "reason",
    "replace_file",
    "shown",
    "unwritten",
    "within",
]
