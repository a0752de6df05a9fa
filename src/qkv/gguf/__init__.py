"""Models from GGUF, the one-file format of llama.cpp: read, never written."""

from qkv.gguf.model import Gguf, open_gguf
from qkv.gguf.weights import Weights

__all__ = ["Gguf", "Weights", "open_gguf"]
