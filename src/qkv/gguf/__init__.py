"""Models from GGUF, the single-file format of llama.cpp: read, never written."""

from qkv.gguf.model import Gguf, GgufWeights, open_gguf

__all__ = ["Gguf", "GgufWeights", "open_gguf"]
