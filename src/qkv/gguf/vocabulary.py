"""A tokenizer made of what a GGUF file says of its vocabulary."""

import math
from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers, processors
from tokenizers import Tokenizer as Backend

from qkv.errors import BundleError
from qkv.files import short_repr
from qkv.gguf.metadata import Facts
from qkv.text.pretrained import merge_pairs
from qkv.text.sentencepiece import BYTE, CONTROL, NORMAL, SPACE, UNKNOWN, USER_DEFINED

# FOLDED gguf/vocabulary: The vocabulary in a GGUF file: its tokens, their sorts, and those with
#   a part to play.
# FOLDED gguf/byte_level: Byte-level vocabularies ("gpt2"): a text is cut into words, and their
#   bytes are joined.
#
#   How it is cut is not in the file, only the name of the way. The expressions are those
#   published
#   with each tokenizer; a name that is not known here is refused, because a text cut in
#   another way
#   gives the model tokens it has rarely seen.
# FOLDED gguf/pieces: SentencePiece vocabularies ("llama"): pieces with scores, and bytes for
#   what no piece spells.
#
#   They are joined in the order of their scores, as in llama.cpp, and only the normal ones: a
#   file may
#   list them in any order, and among others that a text never holds.

PREFIX = "tokenizer.ggml"

# Our word for each mark, and the file's.
MARKS = {"bos": "bos", "eos": "eos", "unk": "unknown", "pad": "padding"}

# What llama.cpp takes for a SentencePiece vocabulary that does not say.
UNSAID = {"unk": 0, "bos": 1, "eos": 2}


class Vocabulary(NamedTuple):
    tokens: list[str]
    sorts: list[int]  # NORMAL … BYTE, as SentencePiece numbers them
    marks: dict[str, int | None]

    def of_sort(self, *sorts: int) -> list[str]:
        pairs = zip(self.tokens, self.sorts, strict=True)
        return [token for token, sort in pairs if sort in sorts]

    def ids(self) -> dict[str, int]:
        return {token: id for id, token in enumerate(self.tokens)}


def read_vocabulary(facts: Facts) -> Vocabulary:
    tokens = facts.each(f"{PREFIX}.tokens", str)
    sorts = facts.each(f"{PREFIX}.token_type", int, [NORMAL] * len(tokens))
    if not tokens or len(sorts) != len(tokens):
        raise BundleError(
            f"{facts.path} lists {len(tokens)} tokens and the sorts of {len(sorts)}; expected "
            "the same number, and at least one"
        )
    if not set(sorts) <= set(range(NORMAL, BYTE + 1)):
        wrong = next(sort for sort in sorts if not NORMAL <= sort <= BYTE)
        raise BundleError(
            f"{facts.path}: a token is of sort {wrong}; expected {NORMAL} to {BYTE}, it is damaged"
        )
    if len(set(tokens)) != len(tokens):
        twice = Counter(tokens).most_common(1)[0][0]
        raise BundleError(f"{facts.path} lists the token {short_repr(twice)} twice; it is damaged")
    return Vocabulary(tokens, sorts, mark_ids(facts, len(tokens)))


def token_count(facts: Facts) -> int:
    return len(facts.each(f"{PREFIX}.tokens", str, []))


def mark_ids(facts: Facts, tokens: int) -> dict[str, int | None]:
    """The token that starts a text, ends it, stands for what is unknown, and fills up rows."""
    if facts.text(f"{PREFIX}.model", "none") == "llama":
        plain = UNSAID
    else:
        plain = {}
    ids: dict[str, int | None] = {}
    for mark, stored in MARKS.items():
        key = f"{PREFIX}.{stored}_token_id"
        ids[mark] = facts.whole(key, least=0) if key in facts else plain.get(mark)
        if (ids[mark] or 0) >= tokens:
            raise BundleError(
                f"{facts.path}: {key} is {ids[mark]}, but the tokens are 0 to {tokens - 1}"
            )
    return ids


GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"

LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


class Cut(NamedTuple):
    """Each expression cuts what the ones before it left."""

    words: tuple[str, ...]
    whole: bool = False  # a word that is a token is taken without joining
    starts: bool = False  # with the start token, unless the file says otherwise
    composed: bool = False  # letters and their accents become one character first


CUTS = {
    "default": Cut((r"[\p{P}\$\+<=>\^~\|]+", GPT2, r"\p{N}+", "[0-9][0-9][0-9]")),
    "gpt-2": Cut((GPT2,)),
    "llama-bpe": Cut((LLAMA3,), whole=True, starts=True),
    "qwen2": Cut((LLAMA3.replace("{1,3}", ""),), composed=True),
    "smollm": Cut((r"\p{N}", GPT2)),
}

ALIKE = {"llama3": "llama-bpe", "llama-v3": "llama-bpe"}


def cut_of(facts: Facts) -> Cut:
    name = facts.text(f"{PREFIX}.pre", "default")
    if ALIKE.get(name, name) not in CUTS:
        raise BundleError(
            f"{facts.path} cuts text into words in the way {short_repr(name)}; known are "
            f"{', '.join((*CUTS, *ALIKE))}"
        )
    return CUTS[ALIKE.get(name, name)]


def byte_backend(facts: Facts, vocabulary: Vocabulary) -> Backend:
    cut = cut_of(facts)
    backend = Backend(models.BPE(vocabulary.ids(), _merges(facts), ignore_merges=cut.whole))
    if cut.composed:
        backend.normalizer = normalizers.NFC()
    steps: list[pre_tokenizers.PreTokenizer] = [
        pre_tokenizers.Split(Regex(words), "isolated") for words in cut.words
    ]
    steps.append(pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False))
    backend.pre_tokenizer = pre_tokenizers.Sequence(steps)
    backend.decoder = decoders.ByteLevel()
    return backend


def _merges(facts: Facts) -> list[tuple[str, str]]:
    merges = []
    for merge in facts.each(f"{PREFIX}.merges", str):
        cut = merge.find(" ", 1)  # a token may itself begin with a space
        left = merge[: max(cut, 0)]
        right = merge[cut + 1 :]
        if not (left and right):
            raise BundleError(
                f"{facts.path}: the merge {short_repr(merge)} is no two tokens with a space between"
            )
        merges.append((left, right))
    return merges


BYTES = [f"<0x{byte:02X}>" for byte in range(256)]


def piece_backend(facts: Facts, vocabulary: Vocabulary) -> Backend:
    """Spaces are pieces of their own kind, "▁"; a text is read as if a space came before it."""
    ids = vocabulary.ids()
    unknown = vocabulary.marks["unk"]
    model = models.BPE(
        ids,
        _joins(facts, vocabulary),
        unk_token=None if unknown is None else vocabulary.tokens[unknown],
        fuse_unk=True,
        byte_fallback=all(byte in ids for byte in BYTES),
    )
    backend = Backend(model)
    spaces: list[normalizers.Normalizer] = [normalizers.Replace(" ", SPACE)]
    words: list[decoders.Decoder] = [
        decoders.Replace(SPACE, " "),
        decoders.ByteFallback(),
        decoders.Fuse(),
    ]
    if facts.flag(f"{PREFIX}.add_space_prefix", True):
        spaces.insert(0, normalizers.Prepend(SPACE))
        words.append(decoders.Strip(" ", 1, 0))
    backend.normalizer = normalizers.Sequence(spaces)
    backend.decoder = decoders.Sequence(words)
    return backend


def _joins(facts: Facts, vocabulary: Vocabulary) -> list[tuple[str, str]]:
    scores = facts.each(f"{PREFIX}.scores", float)
    if len(scores) != len(vocabulary.tokens) or not all(map(math.isfinite, scores)):
        raise BundleError(
            f"{facts.path} has {len(vocabulary.tokens)} tokens and {len(scores)} scores; expected "
            "one finite score for each"
        )
    score = dict(zip(vocabulary.tokens, scores, strict=True))
    normal = {token: score[token] for token in vocabulary.of_sort(NORMAL)}
    ranked = sorted(normal, key=lambda token: -normal[token])
    return merge_pairs(facts.path, ranked, normal, BundleError)


MODELS: dict[str, Callable[[Facts, Vocabulary], Backend]] = {
    "llama": piece_backend,
    "gpt2": byte_backend,
}


def tokenizer_of(facts: Facts) -> Backend:
    """A tokenizer of the library, whose ids are the model's.

    Control tokens are special; with `add_special_tokens` the start and end tokens the file asks
    for are put around a text.
    """
    model = facts.text(f"{PREFIX}.model")
    if model not in MODELS:
        raise BundleError(
            f"{facts.path} has a tokenizer of the sort {short_repr(model)}; read are "
            f"{', '.join(MODELS)}"
        )
    vocabulary = read_vocabulary(facts)
    try:
        backend = MODELS[model](facts, vocabulary)
        for sorts, special in ((UNKNOWN, CONTROL), True), ((USER_DEFINED,), False):
            tokens = vocabulary.of_sort(*sorts)
            backend.add_tokens(
                [AddedToken(token, special=special, normalized=False) for token in tokens if token]
            )
        _add_marks(backend, facts, vocabulary, starts=model == "llama" or cut_of(facts).starts)
    except BundleError:
        raise
    except Exception as error:  # the library knows no narrower one
        raise BundleError(
            f"{facts.path}: its vocabulary makes no tokenizer: {short_repr(str(error))}"
        ) from error
    return backend


def marks_of(facts: Facts) -> dict[str, str | None]:
    """The tokens that start, end, are unknown and pad, and the chat template; None if unsaid."""
    vocabulary = read_vocabulary(facts)
    marks: dict[str, str | None] = {
        mark: None if id is None else vocabulary.tokens[id] for mark, id in vocabulary.marks.items()
    }
    chat = "tokenizer.chat_template"
    return {**marks, "chat_template": facts.text(chat) if chat in facts else None}


def _add_marks(backend: Backend, facts: Facts, vocabulary: Vocabulary, starts: bool) -> None:
    wanted = {
        "bos": facts.flag(f"{PREFIX}.add_bos_token", starts),
        "eos": facts.flag(f"{PREFIX}.add_eos_token", False),
    }
    one = ["$A:0"]
    two = ["$B:1"]
    found = []
    for mark in (mark for mark in wanted if wanted[mark]):
        id = vocabulary.marks[mark]
        if id is None:
            raise BundleError(f"{facts.path} wants a {mark} token at each text but names none")
        # The template calls it by our word: a token may hold what a template would read as more.
        found.append({"id": mark, "ids": [id], "tokens": [vocabulary.tokens[id]]})
        at = 0 if mark == "bos" else len(one)
        one.insert(at, f"{mark}:0")
        two.insert(at, f"{mark}:1")
    if found:
        backend.post_processor = processors.TemplateProcessing(one, one + two, found)
