"""The rows of a .jsonl file: one JSON object a line."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from qkv.data.columns import Asked, choose_columns
from qkv.data.lines import lines
from qkv.errors import DataError, unknown


def read_json_lines(path: Path, asked: Asked) -> Iterator[tuple[int, tuple[str, ...]]]:
    """The line and the asked fields of each object; the first object says which ones they are."""
    names: list[str] | None = None
    for number, line in enumerate(lines(path), start=1):
        if not line.strip():
            continue
        place = f"{path} line {number}"
        row = _object(place, line)
        if names is None:
            names = _names(place, row, asked)
        yield number, tuple(_value(place, row, name) for name in names)


def _object(place: str, line: str) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except json.JSONDecodeError as error:
        raise DataError(f"{place}: not JSON at character {error.pos + 1}: {error.msg}") from None
    except (ValueError, RecursionError):
        raise DataError(f"{place}: JSON that is nested too deeply or has a huge number") from None
    if not isinstance(row, dict):
        raise DataError(f'{place}: a row must be one JSON object, as in {{"text": "…"}}')
    return row


def _names(place: str, row: dict[str, Any], asked: Asked) -> list[str]:
    fields = list(row)
    try:
        return [fields[i] for i in choose_columns(fields, asked, titled=True).places]
    except DataError as error:
        raise DataError(f"{place}: {error}") from None


def _value(place: str, row: dict[str, Any], name: str) -> str:
    if name not in row:
        raise DataError(f"{place}: {unknown('column', name, row)}")
    value = row[name]
    if value is None:
        return ""
    if isinstance(value, dict | list):
        raise DataError(f'{place}: "{name}" is a {type(value).__name__}; a text is needed')
    text = value if isinstance(value, str) else json.dumps(value)
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        raise DataError(f'{place}: "{name}" holds half of a surrogate pair') from None
    return text
