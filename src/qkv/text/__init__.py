"""Text into ids and back: tokenizers learned from the user's own text, or read as published."""

from qkv.text.pretrained import has_tokenizer, read_tokenizer
from qkv.text.special_tokens import DEFAULT_SPECIAL_TOKENS, SpecialTokens
from qkv.text.tokenizer import Tokenizer
from qkv.text.vocab_training import TOKENIZER_KINDS

__all__ = [
    "DEFAULT_SPECIAL_TOKENS",
    "TOKENIZER_KINDS",
    "SpecialTokens",
    "Tokenizer",
    "has_tokenizer",
    "read_tokenizer",
]
