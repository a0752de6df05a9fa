"""Files of strangers: ordinary ones, read whole, or refused in one line before they do harm."""

from qkv.files.ordinary import (
    LARGEST,
    SMALL,
    is_there,
    open_ordinary,
    read_bytes,
    read_text,
    within,
)
from qkv.files.replacing import replace_file
from qkv.files.strict_json import parse_json, read_json, read_json_list
from qkv.files.walk import Walk
from qkv.files.wording import listed, one_line, reason, shown, unwritten

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
