"""Text into ids and back: tokenizers learned from the user's own text, or read as published."""

from qkv.text.kinds import KINDS
from qkv.text.marks import OWN, Marks
from qkv.text.public import has_tokenizer, read_tokenizer
from qkv.text.tokenizer import Tokenizer

__all__ = ["KINDS", "OWN", "Marks", "Tokenizer", "has_tokenizer", "read_tokenizer"]
