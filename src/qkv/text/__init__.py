"""Text into ids and back: tokenizers learned from the user's own text, or read as published."""

from qkv.text.bpe_dropout import check_dropout_supported
from qkv.text.pretrained import has_tokenizer, merge_pairs, read_tokenizer
from qkv.text.prompt import Prompt, encode_prompt
from qkv.text.sentencepiece import METASPACE, PieceType
from qkv.text.special_tokens import DEFAULT_SPECIAL_TOKENS, SpecialTokens
from qkv.text.tokenizer import TOKENIZER_COMPANIONS, Tokenizer
from qkv.text.vocab_training import TOKENIZER_KINDS, check_no_surrogates

__all__ = [
    "DEFAULT_SPECIAL_TOKENS",
    "METASPACE",
    "TOKENIZER_COMPANIONS",
    "TOKENIZER_KINDS",
    "PieceType",
    "Prompt",
    "SpecialTokens",
    "Tokenizer",
    "check_dropout_supported",
    "check_no_surrogates",
    "encode_prompt",
    "has_tokenizer",
    "merge_pairs",
    "read_tokenizer",
]
