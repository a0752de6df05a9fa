"""The rows of a .parquet file, batch by batch; needs pyarrow, which is an extra."""

import json
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from qkv.data.columns import Asked, choose_columns
from qkv.data.files import no_such_file
from qkv.errors import DataError

ROWS = 4096  # of one batch
NARROW = {"float": np.float32, "halffloat": np.float16}  # 0.1 has more digits as a wider number


def read_parquet(path: Path, asked: Asked) -> Iterator[tuple[int, tuple[str, ...]]]:
    """The number from 1 and the asked columns of each row; an empty cell is an empty text."""
    arrow = _pyarrow(path)
    done = 0
    try:
        with arrow.parquet.ParquetFile(path) as file:
            names = _names(path, file.schema_arrow, asked)
            for batch in file.iter_batches(ROWS, columns=names):
                cells = [_texts(path, done, batch.column(name), name) for name in names]
                yield from enumerate(zip(*cells, strict=True), start=done + 1)
                done += len(batch)
    except FileNotFoundError:
        raise no_such_file(path) from None
    except (arrow.ArrowException, OSError) as error:
        after = f" after row {done}" if done else ""
        why = " ".join(str(error).split())
        raise DataError(
            f"cannot read {path}{after}: it is no Parquet file, or damaged ({why})"
        ) from error


def _pyarrow(path: Path) -> Any:
    try:
        import_module("pyarrow.parquet")
    except ImportError:
        raise DataError(f"reading {path} needs pyarrow; get it with: pip install pyarrow") from None
    return import_module("pyarrow")


def _names(path: Path, schema: Any, asked: Asked) -> list[str]:
    """The names of the asked columns, each a single column of texts or numbers."""
    try:
        names = [schema.names[i] for i in choose_columns(schema.names, asked, titled=True).places]
    except DataError as error:
        raise DataError(f"{path}: {error}") from None
    for name in names:
        if schema.names.count(name) > 1:
            raise DataError(f'{path}: several columns are named "{name}"; rename all but one')
        if not _is_written(schema.field(name).type):
            kind = schema.field(name).type
            raise DataError(f'{path}: the column "{name}" holds {kind}; texts are needed')
    return names


def _is_written(kind: Any) -> bool:
    """Whether a cell of that type is a text or has one way to be written."""
    types = import_module("pyarrow").types
    if types.is_dictionary(kind):
        return _is_written(kind.value_type)
    tests = ("string", "large_string", "string_view", "integer", "floating", "boolean", "null")
    return any(getattr(types, f"is_{test}")(kind) for test in tests)


def _texts(path: Path, before: int, column: Any, name: str) -> list[str]:
    """The cells of a column as texts: numbers and truths as JSON writes them."""
    try:
        cells = column.to_pylist()
    except UnicodeDecodeError:
        raise DataError(
            f'{path}: "{name}" holds bytes that are not UTF-8 in one of the rows '
            f"{before + 1} to {before + len(column)}"
        ) from None
    narrow = NARROW.get(str(column.type))
    return [_text(narrow(cell) if narrow and cell is not None else cell) for cell in cells]


def _text(cell: Any) -> str:
    if isinstance(cell, str):
        return cell
    if cell is None or cell != cell:  # pandas writes a missing number as NaN
        return ""
    return str(cell) if isinstance(cell, np.floating) else json.dumps(cell)
