"""Which tokens a model starts, ends, pads and masks with, told from all its files.

The model's own config and generation config speak in ids and decide where a text starts and
ends; the tokenizer's named tokens speak for the rest, and where those say nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tokenizers import Tokenizer as Backend

from qkv.errors import DataError
from qkv.files import shown
from qkv.text.marks import Marks
from qkv.text.settings import Settings


def marks_of(backend: Backend, settings: Settings, names: Mapping[str, str]) -> Marks:
    """`names` are the tokenizer's tokens by name: bos_token, …"""

    def said(field: str) -> list[str]:
        for file, found in (
            ("generation_config.json", settings.generation),
            ("config.json", settings.config),
        ):
            tokens = _tokens(backend, f"{settings.directory / file}: {field}", found.get(field))
            if tokens:
                return tokens
        return []

    def first(*tokens: str | None) -> str | None:
        return next((token for token in tokens if token is not None), None)

    start = said("bos_token_id")
    if settings.config.get("is_encoder_decoder") or said("decoder_start_token_id"):
        start = said("decoder_start_token_id") or start
    ends = said("eos_token_id")
    named = names.get("eos_token")
    end = named if named in ends or not ends else ends[0]
    return Marks(
        pad=first(names.get("pad_token"), *said("pad_token_id")),
        unknown=names.get("unk_token"),
        start=first(*start, names.get("bos_token"), names.get("cls_token")),
        end=first(end, names.get("sep_token")),
        mask=names.get("mask_token"),
        stops=tuple(token for token in dict.fromkeys(ends) if token != end),
        first=first(*said("forced_bos_token_id")),
        chat=settings.chat,
        names=tuple(names.items()) if settings.chat is not None else (),
    )


def _tokens(backend: Backend, where: str, value: Any) -> list[str]:
    """The tokens with these ids: a number or a list of them; below zero is none."""
    found = []
    for id in value if isinstance(value, list) else [value]:
        if id is None:
            continue
        if isinstance(id, bool) or not isinstance(id, int):
            raise DataError(f"{where} must be a whole number or a list of them, not {shown(id)}")
        if id < 0:
            continue
        token = backend.id_to_token(id) if id < 2**32 else None
        if token is None:
            size = backend.get_vocab_size()
            raise DataError(f"{where} is {shown(id)}, but the vocabulary has only {size} tokens")
        found.append(token)
    return found
