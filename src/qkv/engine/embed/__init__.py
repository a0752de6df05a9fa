"""A vector for each text: of a few in memory, or of a file larger than memory on disk."""

from qkv.engine.embed.embedder import LONG, Embedded, Embedder, Long, embed, portions
from qkv.engine.embed.vector_files import Written, embed_to_file, expect_place

__all__ = [
    "LONG",
    "Embedded",
    "Embedder",
    "Long",
    "Written",
    "embed",
    "embed_to_file",
    "expect_place",
    "portions",
]
