"""The tokenizer files of a public checkpoint: what they say of lengths, and how we write them."""

import json
from pathlib import Path
from typing import Any

from qkv.files import is_there, read_json
from qkv.text import Tokenizer

SETTINGS = "tokenizer_config.json"


def longest_said(place: Path, positions: int) -> int | None:
    """How many tokens of a text are read, if fewer than there are positions for."""
    if not is_there(place / SETTINGS):
        return None
    longest = read_json(place / SETTINGS).get("model_max_length")
    if isinstance(longest, bool) or not isinstance(longest, int | float):
        return None
    return int(longest) if 1 <= longest < positions else None  # 1e30 is no limit


def write_tokenizer(
    tokenizer: Tokenizer, place: Path, longest: int, encoder_decoder: bool
) -> dict[str, Any]:
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
    said: dict[str, Any] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": longest,
    }
    said |= {name: token for name, token in named.items() if token is not None}
    text = json.dumps(said, indent=2, ensure_ascii=False) + "\n"
    (place / SETTINGS).write_text(text, encoding="utf-8")
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
