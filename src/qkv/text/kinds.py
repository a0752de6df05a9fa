"""The five ways to cut text into tokens, and how each one learns its vocabulary.

The special tokens come first. No word holds "<" and a letter both, so no learned token can be
spelled like a special one: in a user's text "<pad>" is five characters and nothing else. The
same texts give the same vocabulary in every process.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from typing import NamedTuple

from tokenizers import AddedToken, Regex, decoders, models, pre_tokenizers, trainers
from tokenizers import Tokenizer as Backend

from qkv.errors import DataError, UsageError, unknown
from qkv.text.alphabet import LETTERS, SPECIAL, UNKNOWN
from qkv.text.unigram import unigram
from qkv.text.wordpiece import wordpiece
from qkv.text.words import WORDS, most_frequent, readable

TO_BYTES = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)

# Without merges a model of single characters or bytes needs no words, only runs short enough to
# stay in the processor's cache; one run a character costs four times as much.
RUNS = pre_tokenizers.Split(Regex(r"[\s\S]{1,1024}"), "isolated")
RUNS_OF_BYTES = pre_tokenizers.Sequence([RUNS, TO_BYTES])


def bpe(texts: Iterable[str], vocabulary: int) -> Backend:
    """Bytes that often stand side by side become one token (Sennrich et al. 2016)."""
    backend = Backend(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(WORDS, "isolated"), TO_BYTES]
    )
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        initial_alphabet=list(LETTERS),
        special_tokens=list(SPECIAL),
        show_progress=False,
    )
    backend.train_from_iterator(readable(texts), trainer)
    return backend


def characters(texts: Iterable[str], vocabulary: int) -> Backend:
    """One token a character; if there is no room for all of them the rarest are unknown."""
    counts = Counter[str]()
    for text in readable(texts):
        counts.update(text)
    known = most_frequent(counts, vocabulary - len(SPECIAL))
    backend = Backend(models.BPE(_numbered(sorted(known)), [], unk_token=UNKNOWN))
    backend.pre_tokenizer = RUNS
    backend.decoder = decoders.Fuse()
    return backend


def bytes_(texts: Iterable[str], vocabulary: int) -> Backend:
    """One token a byte of UTF-8; nothing is learned."""
    for _ in readable(texts):
        pass
    backend = Backend(models.BPE(_numbered(LETTERS), []))
    backend.pre_tokenizer = RUNS_OF_BYTES
    backend.decoder = decoders.ByteLevel()
    return backend


class Kind(NamedTuple):
    learn: Callable[[Iterable[str], int], Backend]
    least: int  # tokens it cannot do without, special ones aside
    because: str


BY_NAME = {
    "bpe": Kind(bpe, len(LETTERS), f"{len(LETTERS)} bytes"),
    "wordpiece": Kind(wordpiece, 2, "a character that begins and one that continues a word"),
    "unigram": Kind(unigram, 1, "one character"),
    "characters": Kind(characters, 1, "one character"),
    "bytes": Kind(bytes_, len(LETTERS), f"{len(LETTERS)} bytes"),
}
KINDS = tuple(BY_NAME)


def learn(name: str, texts: Iterable[str], vocabulary: int) -> Backend:
    """A tokenizer of the library with at most `vocabulary` tokens, special ones included."""
    if name not in BY_NAME:
        raise UsageError(unknown("tokenizer", name, KINDS))
    kind = BY_NAME[name]
    least = len(SPECIAL) + kind.least
    if vocabulary < least:
        raise UsageError(
            f"vocabulary={vocabulary} is too small for {name}: {len(SPECIAL)} special tokens "
            f"and {kind.because} need {least}"
        )
    backend = kind.learn(texts, vocabulary)
    backend.add_special_tokens([AddedToken(token, normalized=False) for token in SPECIAL])
    return backend


def kind_of(backend: Backend) -> str:
    """Which of KINDS a tokenizer is, told from its parts; whole words alone are none of them."""
    model, cuts = backend.model, backend.pre_tokenizer
    if isinstance(model, models.WordPiece):
        return "wordpiece"
    if isinstance(model, models.Unigram):
        return "unigram"
    if not isinstance(model, models.BPE):
        raise DataError(f"a {type(model).__name__} tokenizer is none of {', '.join(KINDS)}")
    for kind, runs in (("characters", RUNS), ("bytes", RUNS_OF_BYTES)):
        if cuts is not None and cuts.__getstate__() == runs.__getstate__():
            return kind
    return "bpe"


def spelling_of(backend: Backend) -> str:
    """How its tokens are to be read: letter by letter as `bytes`, as `pieces`, or `plain`."""
    kind, decoder = kind_of(backend), backend.decoder
    if kind == "unigram":
        return "pieces"
    if kind == "bpe" and b"ByteLevel" not in (decoder.__getstate__() if decoder else b""):
        return "pieces"
    return "bytes" if kind in ("bpe", "bytes") else "plain"


def _numbered(tokens: Iterable[str]) -> dict[str, int]:
    return {token: number for number, token in enumerate((*SPECIAL, *tokens))}
