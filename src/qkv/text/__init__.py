"""Text into ids and back: tokenizers learned from the user's own text, saved as tokenizer.json."""

from qkv.text.kinds import KINDS
from qkv.text.tokenizer import Tokenizer

__all__ = ["KINDS", "Tokenizer"]
