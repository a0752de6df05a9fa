"""The tokenizer of a public checkpoint: whether there is one, and its files when we write one."""

import json
from pathlib import Path
from typing import Any

from qkv.text import Tokenizer

FILES = (
    "tokenizer.json",
    "vocab.txt",
    "vocab.json",
    "tokenizer.model",
    "spiece.model",
    "sentencepiece.bpe.model",
    "source.spm",
)


def has_tokenizer(place: Path) -> bool:
    return any((place / name).exists() for name in FILES)


def write_tokenizer(tokenizer: Tokenizer, place: Path, encoder_decoder: bool) -> dict[str, Any]:
    """tokenizer.json and tokenizer_config.json; and what config.json says of special tokens."""
    marks = tokenizer.marks
    (place / "tokenizer.json").write_text(tokenizer.json(), encoding="utf-8")
    named = {
        "pad_token": marks.pad,
        "unk_token": marks.unknown,
        "mask_token": marks.mask,
        "bos_token": None if encoder_decoder else marks.start,
        "eos_token": marks.end,
        "cls_token": marks.start if marks.mask else None,
        "sep_token": marks.end if marks.mask else None,
        "chat_template": marks.chat,
    }
    said = {"tokenizer_class": "PreTrainedTokenizerFast"}
    said |= {name: token for name, token in named.items() if token is not None}
    text = json.dumps(said, indent=2, ensure_ascii=False) + "\n"
    (place / "tokenizer_config.json").write_text(text, encoding="utf-8")
    ids = {
        "pad_token_id": marks.pad,
        "eos_token_id": marks.end,
        ("decoder_start_token_id" if encoder_decoder else "bos_token_id"): marks.start,
        "forced_bos_token_id": marks.first,
    }
    found: dict[str, Any] = {
        name: tokenizer.id_of(token) for name, token in ids.items() if token is not None
    }
    if len(tokenizer.stops) > 1:
        found["eos_token_id"] = list(tokenizer.stops)
    return found
