"""A vector for each text: of a few in memory, or of a file larger than memory on disk."""

from qkv.engine.embed.embedder import Embedded, Embedder, embed
from qkv.engine.embed.stream import portions
from qkv.engine.embed.to_file import Written, embed_to_file, expect_place
from qkv.engine.embed.windows import LONG, Long

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
