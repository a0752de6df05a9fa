"""Models from GGUF, the one-file format of llama.cpp: read, never written."""

from qkv.gguf.model import Gguf, Weights, open_gguf

__all__ = ["Gguf", "Weights", "open_gguf"]
