"""Assembling a pretrained tokenizer: the pipeline, then the added tokens, then the template.

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
from qkv.text.pretrained_files import Settings, Vocabulary, check_contiguous
from qkv.text.special_tokens import SpecialTokens
from qkv.text.tokenizer import Tokenizer

# What no vocabulary has, and every tokenizer must survive.
RARE_TEXT = "☃ 𒀀 \U000f1234"

AddedTokens = dict[str, AddedToken]


def assemble(
    family: Family, vocabulary: Vocabulary, settings: Settings, backend: Backend | None
) -> Tokenizer:
    """The tokenizer of a directory; `backend` is one that stays as its tokenizer.json says."""
    if family.unk_id is not None:
        vocabulary = replace(vocabulary, unk_id=family.unk_id)
    listed = _listed_tokens(vocabulary, settings)
    by_content = {token.content: token for token in listed.values()}
    if backend is None:
        check_contiguous(vocabulary.path, vocabulary.ids)
    by_role = _role_tokens(family, vocabulary, settings, by_content)
    names = {name: token.content for name, token in by_role.items()}
    if backend is None:
        backend = family.build(vocabulary, settings, names)
        if vocabulary.backend is not None:
            backend.post_processor = vocabulary.backend.post_processor
    _add_tokens(backend, listed, by_role, _extra_tokens(family, vocabulary, settings))
    for id, token in listed.items():
        actual = backend.token_to_id(token.content)
        if actual != id:
            raise DataError(
                f"{settings.added_tokens_path}: {short_repr(token.content)} has the id {id}, but "
                f"{actual} is next"
            )
    check_contiguous(vocabulary.path, backend.get_vocab(with_added_tokens=True))
    _set_template(backend, family, vocabulary, settings, names)
    tokenizer = Tokenizer(backend, special_tokens_of(backend, settings, names))
    for text in ("", RARE_TEXT):
        tokenizer.decode(tokenizer.encode(text))
    return tokenizer


def special_tokens_of(
    backend: Backend, settings: Settings, names: Mapping[str, str]
) -> SpecialTokens:
    """The special tokens of a model, from all its files; `names` are the tokenizer's, by name.

    The model's own config.json and generation_config.json speak in ids and decide where a text
    starts and ends; the tokenizer's named tokens decide the rest, and fill in where those are
    silent.
    """

    def from_configs(field: str) -> list[str]:
        for file, config in (
            ("generation_config.json", settings.generation_config),
            ("config.json", settings.config),
        ):
            label = f"{settings.directory / file}: {field}"
            tokens = _tokens(backend, label, config.get(field))
            if tokens:
                return tokens
        return []

    def first(*tokens: str | None) -> str | None:
        return next((token for token in tokens if token is not None), None)

    bos = from_configs("bos_token_id")
    decoder_start = from_configs("decoder_start_token_id")
    if settings.config.get("is_encoder_decoder") or decoder_start:
        bos = decoder_start or bos
    eos_tokens = from_configs("eos_token_id")
    eos = names.get("eos_token")
    if eos_tokens and eos not in eos_tokens:
        eos = eos_tokens[0]
    # Only a chat template refers to tokens by name.
    template_names = () if settings.chat_template is None else tuple(names.items())
    return SpecialTokens(
        pad=first(names.get("pad_token"), *from_configs("pad_token_id")),
        unk=names.get("unk_token"),
        bos=first(*bos, names.get("bos_token"), names.get("cls_token")),
        eos=first(eos, names.get("sep_token")),
        mask=names.get("mask_token"),
        extra_eos=tuple(token for token in dict.fromkeys(eos_tokens) if token != eos),
        forced_bos=first(*from_configs("forced_bos_token_id")),
        chat_template=settings.chat_template,
        template_names=template_names,
    )


def _tokens(backend: Backend, label: str, value: Any) -> list[str]:
    """The tokens with these ids, an integer or a list of them; negative ones mean none."""
    tokens = []
    for id in value if isinstance(value, list) else [value]:
        if id is None:
            continue
        if isinstance(id, bool) or not isinstance(id, int):
            raise DataError(f"{label} must be an integer or a list of them, not {short_repr(id)}")
        if id < 0:
            continue
        token = backend.id_to_token(id) if id < 2**32 else None
        if token is None:
            size = backend.get_vocab_size()
            raise DataError(
                f"{label} is {short_repr(id)}, but the vocabulary has only {size} tokens"
            )
        tokens.append(token)
    return tokens


def _listed_tokens(vocabulary: Vocabulary, settings: Settings) -> dict[int, AddedToken]:
    """The tokens outside the vocabulary, by id."""
    tokens = dict(settings.added_tokens)
    if not settings.lists_all_added and vocabulary.backend is not None:
        tokens |= vocabulary.backend.get_added_tokens_decoder()
    return dict(sorted(tokens.items()))


def _role_tokens(
    family: Family, vocabulary: Vocabulary, settings: Settings, listed: Mapping[str, AddedToken]
) -> AddedTokens:
    """The tokens by name: as the files say, else the family's, if the vocabulary has them."""
    required = {*(family.prefix or ()), *family.suffix} - {"language"}
    if family.model == "WordPiece" or family is GEMMA:
        required.add("unk_token")
    defaults = vocabulary.role_tokens if family is PLAIN else family.tokens
    by_role: AddedTokens = {}
    for name, token in {**defaults, **settings.role_tokens}.items():
        is_known = str(token) in vocabulary.ids or str(token) in listed
        if name in required and not is_known:
            raise DataError(
                f"the vocabulary has no {short_repr(name)}: {short_repr(str(token))} is not in it"
            )
        if token is None or (name not in settings.role_tokens and not is_known):
            continue
        if isinstance(token, str):
            lstrip = family.mask_lstrip and name == "mask_token"
            token = AddedToken(token, lstrip=lstrip, normalized=False, special=True)
        token = listed.get(token.content, token)
        token.special = True
        by_role[name] = token
    return by_role


def _extra_tokens(family: Family, vocabulary: Vocabulary, settings: Settings) -> list[AddedToken]:
    """Further special tokens: those of the files, else the vocabulary's and the family's."""
    if settings.extra_tokens is not None:
        return list(settings.extra_tokens)
    defaults = list(family.languages)
    if family is T5:
        defaults = [token for token in vocabulary.ids if token.startswith("<extra_id_")]
    tokens = list(vocabulary.special_tokens)
    for token in defaults:
        if token in vocabulary.ids:
            tokens.append(AddedToken(token, special=True, normalized=False))
    return tokens


def _add_tokens(
    backend: Backend,
    listed: Mapping[int, AddedToken],
    by_role: AddedTokens,
    extra: list[AddedToken],
) -> None:
    """Add each token once, the listed ones first; a new one gets the next id."""
    existing = {token.content for token in backend.get_added_tokens_decoder().values()}
    tokens = list(listed.values())
    existing |= {token.content for token in tokens}
    for token in (*by_role.values(), *extra):
        if token.content not in existing:
            existing.add(token.content)
            tokens.append(token)
    backend.add_tokens(tokens)


def _set_template(
    backend: Backend,
    family: Family,
    vocabulary: Vocabulary,
    settings: Settings,
    names: Mapping[str, str],
) -> None:
    """Set what is added around a text: the family's tokens, or bos and eos if asked for."""
    prefix = family.prefix
    suffix = family.suffix
    if prefix is None:
        # A tokenizer.json has its own template, so these options count without one only.
        options = () if vocabulary.backend else ("add_bos_token", "add_eos_token")
        is_unset = family is NEOX or backend.post_processor is None
        if not is_unset and not set(options) & set(settings.options):
            return
        requested = {name.removeprefix("add_") for name in options if settings.flag(name, False)}
        requested &= names.keys()
        prefix = tuple(name for name in ("bos_token",) if name in requested)
        suffix = tuple(name for name in ("eos_token",) if name in requested)

    language = settings.options.get("src_lang") or "en_XX"
    tokens = {}
    for name in (*prefix, *suffix):
        token = names.get(name)
        if token is None and name == "language":
            token = language
        id = backend.token_to_id(token) if isinstance(token, str) else None
        if id is None:
            raise DataError(
                f"the vocabulary has no {short_repr(name)}: {short_repr(str(token))} is not in it"
            )
        tokens[name] = (str(token), id)
    if family.trim_offsets:
        add_prefix_space = bool(settings.flag("add_prefix_space", False)) and family.model == "BPE"
        backend.post_processor = processors.RobertaProcessing(
            tokens[suffix[0]],
            tokens[prefix[0]],
            trim_offsets=True,
            add_prefix_space=add_prefix_space,
        )
        return
    before = [tokens[name][0] for name in prefix]
    after = [tokens[name][0] for name in suffix]
    backend.post_processor = processors.TemplateProcessing(
        single=[*before, "$A", *after],
        pair=[*before, "$A", "$B", *after],
        special_tokens=sorted(set(tokens.values())),
    )
