"""A tokenizer put together: the pipeline, then the tokens beside the vocabulary, then the template.

The order and the rules are those of `transformers`, where they decide ids.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tokenizers import AddedToken, processors
from tokenizers import Tokenizer as Backend

from qkv.errors import DataError
from qkv.files import short_repr
from qkv.text.pipelines import GEMMA, NEOX, PLAIN, T5, Family
from qkv.text.pretrained_files import Settings, Vocabulary, expect_whole
from qkv.text.special_tokens import SpecialTokens
from qkv.text.tokenizer import Tokenizer

# FOLDED text/roles: Which tokens a model starts, ends, pads and masks with, told from all its
#   files.
#
#   The model's own config and generation config speak in ids and decide where a text starts
#   and
#   ends; the tokenizer's named tokens speak for the rest, and where those say nothing.


def special_tokens_of(
    backend: Backend, settings: Settings, names: Mapping[str, str]
) -> SpecialTokens:
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
    return SpecialTokens(
        pad=first(names.get("pad_token"), *said("pad_token_id")),
        unk=names.get("unk_token"),
        bos=first(*start, names.get("bos_token"), names.get("cls_token")),
        eos=first(end, names.get("sep_token")),
        mask=names.get("mask_token"),
        extra_eos=tuple(token for token in dict.fromkeys(ends) if token != end),
        forced_bos=first(*said("forced_bos_token_id")),
        chat_template=settings.chat,
        template_names=tuple(names.items()) if settings.chat is not None else (),
    )


def _tokens(backend: Backend, where: str, value: Any) -> list[str]:
    """The tokens with these ids: a number or a list of them; below zero is none."""
    found = []
    for id in value if isinstance(value, list) else [value]:
        if id is None:
            continue
        if isinstance(id, bool) or not isinstance(id, int):
            raise DataError(
                f"{where} must be a whole number or a list of them, not {short_repr(id)}"
            )
        if id < 0:
            continue
        token = backend.id_to_token(id) if id < 2**32 else None
        if token is None:
            size = backend.get_vocab_size()
            raise DataError(
                f"{where} is {short_repr(id)}, but the vocabulary has only {size} tokens"
            )
        found.append(token)
    return found


RARE = "☃ 𒀀 \U000f1234"  # what no vocabulary knows, and every tokenizer must survive

Tokens = dict[str, AddedToken]


def assemble(
    family: Family, vocabulary: Vocabulary, settings: Settings, whole: Backend | None
) -> Tokenizer:
    """`whole` is a tokenizer that stays as its tokenizer.json says."""
    if family.unknown is not None:
        vocabulary = replace(vocabulary, unknown=family.unknown)
    if whole is None:
        expect_whole(vocabulary.path, vocabulary.ids)
    listed = _listed(vocabulary, settings)
    roles = _roles(family, vocabulary, settings, {t.content: t for t in listed.values()})
    names = {name: token.content for name, token in roles.items()}
    backend = whole or family.build(vocabulary, settings, names)
    if whole is None and vocabulary.whole is not None:
        backend.post_processor = vocabulary.whole.post_processor
    _add(backend, listed, roles, _extras(family, vocabulary, settings))
    for id, token in listed.items():
        if backend.token_to_id(token.content) != id:
            found = backend.token_to_id(token.content)
            raise DataError(
                f"{settings.added_from}: {short_repr(token.content)} has the id {id}, but {found} "
                "is next"
            )
    expect_whole(vocabulary.path, backend.get_vocab(with_added_tokens=True))
    _set_template(backend, family, vocabulary, settings, names)
    tokenizer = Tokenizer(backend, special_tokens_of(backend, settings, names))
    for text in ("", RARE):
        tokenizer.decode(tokenizer.encode(text))
    return tokenizer


def _listed(vocabulary: Vocabulary, settings: Settings) -> dict[int, AddedToken]:
    """The tokens beside the vocabulary, by their ids."""
    if settings.adds_all or vocabulary.whole is None:
        return dict(sorted(settings.added.items()))
    both = {**settings.added, **vocabulary.whole.get_added_tokens_decoder()}
    return dict(sorted(both.items()))


def _roles(
    family: Family, vocabulary: Vocabulary, settings: Settings, listed: Mapping[str, AddedToken]
) -> Tokens:
    """The named tokens: as the files say, else the family's, if the vocabulary has them."""
    needed = {*(family.before or ()), *family.after} - {"language"}
    if family.model == "WordPiece" or family is GEMMA:
        needed.add("unk_token")
    usual = vocabulary.names if family is PLAIN else family.roles
    roles: Tokens = {}
    for name, token in {**usual, **settings.roles}.items():
        is_known = str(token) in vocabulary.ids or str(token) in listed
        if name in needed and not is_known:
            raise DataError(
                f"the vocabulary has no {short_repr(name)}: {short_repr(str(token))} is not in it"
            )
        if token is None or (name not in settings.roles and not is_known):
            continue
        if isinstance(token, str):
            space = family.mask_takes_space and name == "mask_token"
            token = AddedToken(token, lstrip=space, normalized=False, special=True)
        token = listed.get(token.content, token)
        token.special = True
        roles[name] = token
    return roles


def _extras(family: Family, vocabulary: Vocabulary, settings: Settings) -> list[AddedToken]:
    """Further special tokens: those the files name, else the vocabulary's and the family's."""
    if settings.extras is not None:
        return list(settings.extras)
    usual = list(family.languages)
    if family is T5:
        usual = [token for token in vocabulary.ids if token.startswith("<extra_id_")]
    known = [AddedToken(token, special=True, normalized=False) for token in usual]
    return [*vocabulary.special, *(token for token in known if token.content in vocabulary.ids)]


def _add(
    backend: Backend, listed: Mapping[int, AddedToken], roles: Tokens, extras: list[AddedToken]
) -> None:
    """Each token once, the listed ones first; one that is new gets the next id."""
    there = {token.content for token in backend.get_added_tokens_decoder().values()}
    tokens = list(listed.values())
    there |= {token.content for token in tokens}
    for token in (*roles.values(), *extras):
        if token.content not in there:
            there.add(token.content)
            tokens.append(token)
    backend.add_tokens(tokens)


def _set_template(
    backend: Backend,
    family: Family,
    vocabulary: Vocabulary,
    settings: Settings,
    names: Mapping[str, str],
) -> None:
    """What stands around a text: the family's marks, or bos and eos if they are asked for."""
    asked = () if vocabulary.whole else ("add_bos_token", "add_eos_token")  # else the file says it
    if family.before is not None:
        before, after = family.before, family.after
    elif family is NEOX or backend.post_processor is None or set(asked) & set(settings.options):
        wanted = [name.removeprefix("add_") for name in asked if settings.flag(name, False)]
        before = tuple(name for name in wanted if name == "bos_token" and name in names)
        after = tuple(name for name in wanted if name == "eos_token" and name in names)
    else:
        return
    language = settings.options.get("src_lang") or "en_XX"
    ids = {}
    for name in (*before, *after):
        token = names.get(name, language if name == "language" else None)
        id = backend.token_to_id(token) if isinstance(token, str) else None
        if id is None:
            raise DataError(
                f"the vocabulary has no {short_repr(name)}: {short_repr(str(token))} is not in it"
            )
        ids[name] = (str(token), id)
    if family.trims:
        space = bool(settings.flag("add_prefix_space", False)) and family.model == "BPE"
        backend.post_processor = processors.RobertaProcessing(
            ids[after[0]], ids[before[0]], trim_offsets=True, add_prefix_space=space
        )
        return
    first, last = ([ids[name][0] for name in part] for part in (before, after))
    backend.post_processor = processors.TemplateProcessing(
        single=[*first, "$A", *last],
        pair=[*first, "$A", "$B", *last],
        special_tokens=sorted(set(ids.values())),
    )
