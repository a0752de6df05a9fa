"""Builds a tokenizer from the vocabulary in a GGUF file.

Two kinds of vocabulary are supported:

- "gpt2": byte-level BPE. A text is split into words, whose bytes are merged. The file holds only
  the name of the splitting rule; the regexes here are those published with each tokenizer. An
  unknown name is an error, because a text split by another rule gives the model tokens that it has
  rarely seen.
- "llama": SentencePiece BPE. Pieces have scores, and bytes stand for what no piece spells. Pieces
  are merged in the order of their scores, as in llama.cpp, and only the normal ones: a file may
  list them in any order, along with others that never occur in a text.
"""

import math
from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers, processors
from tokenizers import Tokenizer as Backend

from qkv.errors import BundleError
from qkv.files import short_repr
from qkv.gguf.metadata import Metadata
from qkv.text import METASPACE, PieceType, merge_pairs

PREFIX = "tokenizer.ggml"
TOKENIZER_JSON = "tokenizer.huggingface.json"  # optional: the tokenizer.json of the model
CHAT_TEMPLATE = "tokenizer.chat_template"

# Our name for each special token, and the one in the file.
SPECIAL_TOKENS = {"bos": "bos", "eos": "eos", "unk": "unknown", "pad": "padding"}

# What llama.cpp assumes for a SentencePiece vocabulary that does not name them.
DEFAULT_SPECIAL_IDS = {"unk": 0, "bos": 1, "eos": 2}

GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"

LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)

BYTE_TOKENS = [f"<0x{byte:02X}>" for byte in range(256)]


class GgufVocabulary(NamedTuple):
    tokens: list[str]
    token_types: list[int]  # numbers of PieceType
    special_ids: dict[str, int | None]

    def of_type(self, *token_types: int) -> list[str]:
        pairs = zip(self.tokens, self.token_types, strict=True)
        return [token for token, token_type in pairs if token_type in token_types]

    def ids(self) -> dict[str, int]:
        return {token: id for id, token in enumerate(self.tokens)}


class SplitRule(NamedTuple):
    """How a byte-level tokenizer splits a text into words, and its other options.

    regexes: each splits what the ones before it left.
    ignore_merges: a word that is a token is taken as it is, without merging.
    add_bos: put bos before a text, unless the file says otherwise.
    nfc: normalize letters and their accents to one character first.
    """

    regexes: tuple[str, ...]
    ignore_merges: bool = False
    add_bos: bool = False
    nfc: bool = False


SPLIT_RULES = {
    "default": SplitRule((r"[\p{P}\$\+<=>\^~\|]+", GPT2, r"\p{N}+", "[0-9][0-9][0-9]")),
    "gpt-2": SplitRule((GPT2,)),
    "llama-bpe": SplitRule((LLAMA3,), ignore_merges=True, add_bos=True),
    "qwen2": SplitRule((LLAMA3.replace("{1,3}", ""),), nfc=True),
    "smollm": SplitRule((r"\p{N}", GPT2)),
}

SPLIT_RULE_ALIASES = {"llama3": "llama-bpe", "llama-v3": "llama-bpe"}


def build_tokenizer(metadata: Metadata) -> Backend:
    """A tokenizer of the `tokenizers` library with the model's ids.

    Control tokens are special. With `add_special_tokens`, bos and eos are put around a text if the
    file asks for them.
    """
    model = metadata.string(f"{PREFIX}.model")
    if model not in BUILDERS:
        raise BundleError(
            f"{metadata.path} has a tokenizer of type {short_repr(model)}; supported are "
            f"{', '.join(BUILDERS)}"
        )
    vocabulary = read_vocabulary(metadata)
    if TOKENIZER_JSON in metadata:
        return _embedded_tokenizer(metadata, vocabulary)
    try:
        backend = BUILDERS[model](metadata, vocabulary)
        special_types = (PieceType.UNKNOWN, PieceType.CONTROL)
        for token_types, special in ((special_types, True), ((PieceType.USER_DEFINED,), False)):
            tokens = [token for token in vocabulary.of_type(*token_types) if token]
            backend.add_tokens(
                [AddedToken(token, special=special, normalized=False) for token in tokens]
            )
        add_bos = model == "llama" or split_rule(metadata).add_bos
        _add_post_processor(backend, metadata, vocabulary, add_bos)
    except BundleError:
        raise
    except Exception as error:  # the library raises no narrower type
        raise BundleError(
            f"{metadata.path}: no tokenizer can be built from its vocabulary: "
            f"{short_repr(str(error))}"
        ) from error
    return backend


def _embedded_tokenizer(metadata: Metadata, vocabulary: GgufVocabulary) -> Backend:
    """The tokenizer.json in the file, if it has the ids that llama.cpp would use."""
    try:
        backend = Backend.from_str(metadata.string(TOKENIZER_JSON))
    except BundleError:
        raise
    except Exception as error:  # the library raises no narrower type
        raise BundleError(
            f"{metadata.path}: {TOKENIZER_JSON} is not a tokenizer: {short_repr(str(error))}"
        ) from error
    for token, id in backend.get_vocab().items():
        if id >= len(vocabulary.tokens) or vocabulary.tokens[id] != token:
            raise BundleError(
                f"{metadata.path}: token {id} is {short_repr(token)} in {TOKENIZER_JSON}, but not "
                f"in {PREFIX}.tokens; the file is damaged"
            )
    return backend


def read_special_tokens(metadata: Metadata) -> dict[str, str | None]:
    """`bos`, `eos`, `unk`, `pad` and `chat_template`; None where the file has none."""
    vocabulary = read_vocabulary(metadata)
    special_tokens: dict[str, str | None] = {}
    for role, id in vocabulary.special_ids.items():
        special_tokens[role] = None if id is None else vocabulary.tokens[id]
    special_tokens["chat_template"] = None
    if CHAT_TEMPLATE in metadata:
        special_tokens["chat_template"] = metadata.string(CHAT_TEMPLATE)
    return special_tokens


def read_vocabulary(metadata: Metadata) -> GgufVocabulary:
    tokens = metadata.list_of(f"{PREFIX}.tokens", str)
    token_types = metadata.list_of(
        f"{PREFIX}.token_type", int, [int(PieceType.NORMAL)] * len(tokens)
    )
    if not tokens or len(token_types) != len(tokens):
        raise BundleError(
            f"{metadata.path} lists {len(tokens)} tokens and {len(token_types)} token types; "
            "expected the same number, and at least one"
        )
    for token_type in token_types:
        if not PieceType.NORMAL <= token_type <= PieceType.BYTE:
            raise BundleError(
                f"{metadata.path}: a token has type {token_type}; expected "
                f"{PieceType.NORMAL} to {PieceType.BYTE}, the file is damaged"
            )
    if len(set(tokens)) != len(tokens):
        duplicate = Counter(tokens).most_common(1)[0][0]
        raise BundleError(
            f"{metadata.path} lists the token {short_repr(duplicate)} twice; the file is damaged"
        )
    return GgufVocabulary(tokens, token_types, read_special_ids(metadata, len(tokens)))


def token_count(metadata: Metadata) -> int:
    return len(metadata.list_of(f"{PREFIX}.tokens", str, []))


def read_special_ids(metadata: Metadata, vocab_size: int) -> dict[str, int | None]:
    """The ids of `bos`, `eos`, `unk` and `pad`; None where the file has none."""
    defaults: dict[str, int] = {}
    if metadata.string(f"{PREFIX}.model", "none") == "llama":
        defaults = DEFAULT_SPECIAL_IDS
    ids: dict[str, int | None] = {}
    for role, name in SPECIAL_TOKENS.items():
        key = f"{PREFIX}.{name}_token_id"
        id = defaults.get(role)
        if key in metadata:
            id = metadata.integer(key, minimum=0)
        if id is not None and id >= vocab_size:
            raise BundleError(
                f"{metadata.path}: {key} is {id}, but the token ids are 0 to {vocab_size - 1}"
            )
        ids[role] = id
    return ids


def split_rule(metadata: Metadata) -> SplitRule:
    name = metadata.string(f"{PREFIX}.pre", "default")
    rule = SPLIT_RULES.get(SPLIT_RULE_ALIASES.get(name, name))
    if rule is None:
        raise BundleError(
            f"{metadata.path} splits text by the unknown rule {short_repr(name)}; supported are "
            f"{', '.join((*SPLIT_RULES, *SPLIT_RULE_ALIASES))}"
        )
    return rule


def _byte_level_bpe(metadata: Metadata, vocabulary: GgufVocabulary) -> Backend:
    rule = split_rule(metadata)
    model = models.BPE(vocabulary.ids(), _read_merges(metadata), ignore_merges=rule.ignore_merges)
    backend = Backend(model)
    if rule.nfc:
        backend.normalizer = normalizers.NFC()
    steps: list[pre_tokenizers.PreTokenizer] = [
        pre_tokenizers.Split(Regex(regex), "isolated") for regex in rule.regexes
    ]
    steps.append(pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False))
    backend.pre_tokenizer = pre_tokenizers.Sequence(steps)
    backend.decoder = decoders.ByteLevel()
    return backend


def _read_merges(metadata: Metadata) -> list[tuple[str, str]]:
    merges = []
    for merge in metadata.list_of(f"{PREFIX}.merges", str):
        space = merge.find(" ", 1)  # the first token may itself begin with a space
        first = merge[: max(space, 0)]
        second = merge[space + 1 :]
        if not (first and second):
            raise BundleError(
                f"{metadata.path}: the merge {short_repr(merge)} must be two tokens separated by a "
                "space"
            )
        merges.append((first, second))
    return merges


def _sentencepiece_bpe(metadata: Metadata, vocabulary: GgufVocabulary) -> Backend:
    """Spaces are written as "▁", and a text is read as if a space came before it."""
    ids = vocabulary.ids()
    unk_id = vocabulary.special_ids["unk"]
    model = models.BPE(
        ids,
        _merges_by_score(metadata, vocabulary),
        unk_token=None if unk_id is None else vocabulary.tokens[unk_id],
        fuse_unk=True,
        byte_fallback=all(token in ids for token in BYTE_TOKENS),
    )
    backend = Backend(model)
    normalize: list[normalizers.Normalizer] = [normalizers.Replace(" ", METASPACE)]
    decode: list[decoders.Decoder] = [
        decoders.Replace(METASPACE, " "),
        decoders.ByteFallback(),
        decoders.Fuse(),
    ]
    if metadata.flag(f"{PREFIX}.add_space_prefix", True):
        normalize.insert(0, normalizers.Prepend(METASPACE))
        decode.append(decoders.Strip(" ", 1, 0))
    backend.normalizer = normalizers.Sequence(normalize)
    backend.decoder = decoders.Sequence(decode)
    return backend


def _merges_by_score(metadata: Metadata, vocabulary: GgufVocabulary) -> list[tuple[str, str]]:
    scores = metadata.list_of(f"{PREFIX}.scores", float)
    if len(scores) != len(vocabulary.tokens) or not all(map(math.isfinite, scores)):
        raise BundleError(
            f"{metadata.path} has {len(vocabulary.tokens)} tokens and {len(scores)} scores; "
            "expected one finite score for each"
        )
    score_of = dict(zip(vocabulary.tokens, scores, strict=True))
    normal = {token: score_of[token] for token in vocabulary.of_type(PieceType.NORMAL)}
    by_score = sorted(normal, key=lambda token: -normal[token])
    return merge_pairs(metadata.path, by_score, normal, BundleError)


BUILDERS: dict[str, Callable[[Metadata, GgufVocabulary], Backend]] = {
    "llama": _sentencepiece_bpe,
    "gpt2": _byte_level_bpe,
}


def _add_post_processor(
    backend: Backend, metadata: Metadata, vocabulary: GgufVocabulary, add_bos: bool
) -> None:
    """Adds bos and eos around a text, and around each text of a pair."""
    flags = {
        "bos": metadata.flag(f"{PREFIX}.add_bos_token", add_bos),
        "eos": metadata.flag(f"{PREFIX}.add_eos_token", False),
    }
    single = ["$A:0"]
    second = ["$B:1"]
    special_tokens = []
    for role in (role for role, flag in flags.items() if flag):
        id = vocabulary.special_ids[role]
        if id is None:
            raise BundleError(f"{metadata.path} wants a {role} token around texts but has none")
        # The template refers to the token by its role: the token itself may contain characters
        # that have a meaning in templates.
        special_tokens.append({"id": role, "ids": [id], "tokens": [vocabulary.tokens[id]]})
        index = 0 if role == "bos" else len(single)
        single.insert(index, f"{role}:0")
        second.insert(index, f"{role}:1")
    if special_tokens:
        backend.post_processor = processors.TemplateProcessing(
            single, single + second, special_tokens
        )
