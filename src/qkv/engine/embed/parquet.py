"""Texts and vectors as a .parquet file; needs pyarrow, which is an extra.

A Parquet file cannot be gone on with once its writer is gone. So rows are first written as a stream
of Arrow batches, which can, and are turned into the file at the end, batch by batch.
"""

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from qkv.engine.embed.embedder import Vectors
from qkv.engine.embed.part import Part, to_disk
from qkv.errors import DataError

END = b"\xff\xff\xff\xff\x00\x00\x00\x00"  # of a stream of Arrow batches


class Parquet(Part):
    """Two columns, text and vector (a list of D numbers of 32 bits); a portion is a row group."""

    ending = ".parquet"

    def __init__(self, path: Path, width: int, size: int | None) -> None:
        self.arrow = expect_pyarrow()
        vector = self.arrow.list_(self.arrow.float32(), width)
        self.schema = self.arrow.schema([("text", self.arrow.string()), ("vector", vector)])
        super().__init__(path, width, size)

    def head(self, rows: int) -> bytes:
        return bytes(self.schema.serialize())

    def add(self, texts: Sequence[str], vectors: Vectors) -> None:
        flat = self.arrow.array(vectors.reshape(-1), self.arrow.float32())
        lists = self.arrow.FixedSizeListArray.from_arrays(flat, self.width)
        columns = [self.arrow.array(texts, self.arrow.string()), lists]
        batch = self.arrow.record_batch(columns, schema=self.schema)
        self.file.write(batch.serialize())

    def finish(self, rows: int, target: Path) -> None:
        self.file.write(END)
        self.file.seek(0)
        whole = self.path.with_name(self.path.name + ".whole")
        with (
            self.arrow.ipc.open_stream(self.file) as stream,
            self.arrow.parquet.ParquetWriter(whole, self.schema) as writer,
        ):
            for batch in stream:
                writer.write_batch(batch)
        self.close()
        to_disk(whole)
        whole.replace(target)
        self.path.unlink()


def expect_pyarrow() -> Any:
    """The library, or a DataError that says how to get it."""
    try:
        import_module("pyarrow.parquet")
    except ImportError:
        raise DataError(
            "writing a .parquet file needs pyarrow; get it with: pip install pyarrow"
        ) from None
    return import_module("pyarrow")
