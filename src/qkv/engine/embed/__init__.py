"""A vector for each text: of a few in memory, or of a file larger than memory on disk."""

from qkv.engine.embed.embedder import (
    LONG_TEXT_POLICIES,
    Embedder,
    Embeddings,
    LongTextPolicy,
    embed,
    embedding_model,
    pooling_note,
    text_batches,
)
from qkv.engine.embed.vector_cache import (
    CachedVectors,
    cache_entry,
    read_cached,
    write_cached,
)
from qkv.engine.embed.vector_files import VectorFile, check_vector_path, embed_to_file

__all__ = [
    "LONG_TEXT_POLICIES",
    "CachedVectors",
    "Embedder",
    "Embeddings",
    "LongTextPolicy",
    "VectorFile",
    "cache_entry",
    "check_vector_path",
    "embed",
    "embed_to_file",
    "embedding_model",
    "pooling_note",
    "read_cached",
    "text_batches",
    "write_cached",
]
