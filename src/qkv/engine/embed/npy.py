"""Vectors as a .npy file, (n, D) float32: what numpy saves, though n is known only at the end."""

from collections.abc import Sequence
from io import BytesIO
from pathlib import Path

import numpy as np

from qkv.engine.embed.embedder import Vectors
from qkv.engine.embed.part import Part


class Npy(Part):
    """The rows behind each other; numpy keeps room in its header for the largest number of them."""

    ending = ".npy"

    def head(self, rows: int) -> bytes:
        made = BytesIO()
        facts = {"descr": "<f4", "fortran_order": False, "shape": (rows, self.width)}
        np.lib.format.write_array_header_1_0(made, facts)
        return made.getvalue()

    def add(self, texts: Sequence[str], vectors: Vectors) -> None:
        self.file.write(np.ascontiguousarray(vectors, dtype="<f4").tobytes())

    def finish(self, rows: int, target: Path) -> None:
        self.file.seek(0)
        self.file.write(self.head(rows))
        self.flush()
        self.close()
        self.path.replace(target)
