"""Safe file access: bounded reads of untrusted files, strict JSON, atomic writes."""

from qkv.files.safe_io import (
    MAX_CONFIG_BYTES,
    MAX_VOCAB_BYTES,
    atomic_write,
    cache_dir,
    check_inside_directory,
    closest_path,
    lexists,
    one_line,
    open_regular_file,
    os_error_reason,
    read_bytes,
    read_text,
    short_repr,
    suggest_path,
    summarize_names,
    write_error_message,
)
from qkv.files.strict_json import JsonScanner, parse_json, read_json, read_json_list

__all__ = [
    "MAX_CONFIG_BYTES",
    "MAX_VOCAB_BYTES",
    "JsonScanner",
    "atomic_write",
    "cache_dir",
    "check_inside_directory",
    "closest_path",
    "lexists",
    "one_line",
    "open_regular_file",
    "os_error_reason",
    "parse_json",
    "read_bytes",
    "read_json",
    "read_json_list",
    "read_text",
    "short_repr",
    "suggest_path",
    "summarize_names",
    "write_error_message",
]
