"""Training a vocabulary: the five kinds of tokenizer, and how each learns from texts.

The special tokens come first. No word contains both "<" and a letter, so no learned token can be
spelled like a special one: in a user's text "<pad>" is five characters and nothing else. The same
texts give the same vocabulary in every process.

Byte-level tokenizers store tokens as strings, so each byte is written as one visible character. A
byte that is a visible Latin-1 character stands for itself; the others use the characters from
U+0100 on, in order (GPT-2, Radford et al. 2019). So a space is "Ġ", and "é" is two, "Ã©".
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers, trainers
from tokenizers import Tokenizer as Backend

from qkv.errors import DataError, UsageError, unknown
from qkv.text.sentencepiece import METASPACE

SPECIAL = ("<pad>", "<unknown>", "<start>", "<end>", "<mask>")

UNK = SPECIAL[1]


def _byte_alphabet() -> tuple[str, ...]:
    visible = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    substitutes = iter(range(0x100, 0x200))
    alphabet = []
    for byte in range(256):
        code_point = byte if byte in visible else next(substitutes)
        alphabet.append(chr(code_point))
    return tuple(alphabet)


BYTE_ALPHABET = _byte_alphabet()  # the character that stands for each byte
BYTE_OF = {character: byte for byte, character in enumerate(BYTE_ALPHABET)}


def decode_byte_level(token: str) -> str:
    """The text of a byte-level token; a byte that is only part of a character as \\xNN."""
    if not BYTE_OF.keys() >= set(token):
        return token
    return bytes(BYTE_OF[character] for character in token).decode(
        "utf-8", errors="backslashreplace"
    )


def display_token(token: str, spelling: str) -> str:
    """A token of the vocabulary as readable text, invisible characters escaped.

    Spelled as `bytes`, each character is a byte; as `pieces`, "▁" is a space and "<0x0A>" a byte;
    `plain` tokens are their own text.
    """
    if spelling == "bytes":
        token = decode_byte_level(token)
    elif spelling == "pieces":
        byte = re.fullmatch("<0x([0-9A-F]{2})>", token)
        if byte:
            token = decode_byte_level(BYTE_ALPHABET[int(byte[1], 16)])
        else:
            token = token.replace(METASPACE, " ")
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in token)


# The words of GPT-2, with combining marks among the letters. A word ends after 64 characters:
# merging takes more than linear time in a word's length, and a text may be one long run.
WORDS = Regex(
    r"'(?:[sdmt]|ll|ve|re)"
    r"| ?[\p{L}\p{M}]{1,64}| ?\p{N}{1,64}| ?[^\s\p{L}\p{M}\p{N}]{1,64}"
    r"|\s{1,64}(?!\S)|\s{1,64}"
)


def checked_texts(texts: Iterable[str]) -> Iterator[str]:
    """The same texts; raises DataError on an unpaired surrogate, or if all are empty."""
    is_empty = True
    for text in texts:
        check_no_surrogates(text)
        is_empty = is_empty and not text
        yield text
    if is_empty:
        raise DataError("there is no text to learn a tokenizer from; every text is empty")


def check_no_surrogates(text: str) -> None:
    """Raises DataError on an unpaired surrogate, which has no UTF-8 bytes and no token."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise DataError(
            f"text holds half a character (U+{ord(text[error.start]):04X}) at position "
            f"{error.start}; it has no UTF-8 form, so remove it or read the file again as UTF-8"
        ) from None


def pre_tokenize(backend: Backend, text: str) -> list[str]:
    """The words of a text, normalised; without a pre-tokenizer the text is one word."""
    normalizer = backend.normalizer
    if normalizer:
        text = normalizer.normalize_str(text)
    if not backend.pre_tokenizer:
        return [text]
    return [word for word, _ in backend.pre_tokenizer.pre_tokenize_str(text)]


def count_words(backend: Backend, texts: Iterable[str]) -> Counter[str]:
    """How often each word occurs, as this tokenizer separates words."""
    words = Counter[str]()
    for text in checked_texts(texts):
        words.update(pre_tokenize(backend, text))
    if not words:
        raise DataError("there is no word to learn a tokenizer from; all the texts are blank")
    return words


def count_characters(words: Mapping[str, int]) -> Counter[str]:
    """How often each character occurs in words that occur so often."""
    characters = Counter[str]()
    for word, n in words.items():
        for character in word:
            characters[character] += n
    return characters


def most_frequent(counts: Mapping[str, int], max_size: int) -> set[str]:
    """The most frequent ones; of equally frequent ones those that sort first."""
    return set(sorted(counts, key=lambda name: (-counts[name], name))[:max_size])


def repeat_words(words: Mapping[str, int]) -> Iterator[str]:
    """Each word as often as it occurs: the library takes no counts."""
    return (word for word, n in words.items() for _ in range(n))


SCORE_DIGITS = 6  # far above the rounding noise in the library's sums


def unigram(texts: Iterable[str], vocab_size: int) -> Backend:
    """Unigram: of all frequent substrings, those that make the texts most likely (Kudo 2018).

    A space is "▁" in a piece. Characters that do not fit into the vocabulary, the rarest, are unk.
    """
    backend = Backend(models.Unigram())
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(WORDS, "isolated"),
            pre_tokenizers.Metaspace(prepend_scheme="never", split=False),
        ]
    )
    backend.decoder = decoders.Metaspace(prepend_scheme="never", split=False)

    words = count_words(backend, texts)
    characters = count_characters(words)
    alphabet = most_frequent(characters, vocab_size - len(SPECIAL))
    rare = dict.fromkeys(map(ord, characters.keys() - alphabet))  # for str.translate: deleted
    trainer = trainers.UnigramTrainer(
        vocab_size=vocab_size,
        special_tokens=list(SPECIAL),
        unk_token=UNK,
        show_progress=False,
    )
    trained = Backend(models.Unigram())
    trained.train_from_iterator((word.translate(rare) for word in repeat_words(words)), trainer)
    pieces = _reproducible(_unigram_scores(trained), vocab_size - len(SPECIAL))
    special = [(token, 0.0) for token in SPECIAL]
    backend.model = models.Unigram([*special, *pieces], unk_id=SPECIAL.index(UNK))
    return backend


def _reproducible(scores: dict[str, float], max_size: int) -> list[tuple[str, float]]:
    """The best pieces, best first, and all single characters, the same in every run.

    The library sums in the order of a random hash, which changes the last bits of a score. To
    characters that its pieces made superfluous it gives the lowest score plus 0.0001 for each one
    before, again in random order; here all of them get the lowest.
    """
    floor = min(scores.values())
    ladder = floor + 0.0001 * (1 + sum(len(piece) == 1 for piece in scores))
    for piece, score in scores.items():
        is_superfluous = len(piece) == 1 and score < ladder
        scores[piece] = round(floor if is_superfluous else score, SCORE_DIGITS)
    by_score = sorted(scores, key=lambda piece: (-scores[piece], piece))
    # Characters first, each group still by score: the sort is stable.
    characters_first = sorted(by_score, key=lambda piece: len(piece) > 1)
    selection = set(characters_first[:max_size])
    return [(piece, scores[piece]) for piece in by_score if piece in selection]


def _unigram_scores(trained: Backend) -> dict[str, float]:
    """The learned pieces with their scores, which the library exposes only in its JSON."""
    pieces = json.loads(trained.to_str())["model"]["vocab"]
    # A text of nothing but NUL, which the library uses as a delimiter, gives null scores.
    return {piece: score or 0.0 for piece, score in pieces if piece not in SPECIAL}


MAX_WORD_CHARACTERS = 100  # a longer word is unk; matching takes time quadratic in its length


def wordpiece(texts: Iterable[str], vocab_size: int) -> Backend:
    """WordPiece: neighbours in lower-cased words merge; ## continues a word (Schuster 2012).

    Accents and case are lost. Characters that do not fit into the vocabulary, the rarest, are unk.

    The library numbers the ##c in the order of a random hash, and of two equally frequent merges
    takes the one numbered first. So they are passed in a fixed order, as special tokens of an
    auxiliary tokenizer of which only the vocabulary is used (huggingface/tokenizers issue 1794).
    """
    backend = Backend(_wordpiece_model({}))
    backend.normalizer = normalizers.BertNormalizer(lowercase=True)
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.decoder = decoders.WordPiece()

    words = count_words(backend, texts)
    max_characters = (vocab_size - len(SPECIAL)) // 2  # a character is c or ##c
    alphabet = most_frequent(count_characters(words), max_characters)
    known_words = {}
    for word, count in words.items():
        if len(word) <= MAX_WORD_CHARACTERS and alphabet.issuperset(word):
            known_words[word] = count
    continuations = sorted({f"##{character}" for word in known_words for character in word[1:]})
    trainer = trainers.WordPieceTrainer(
        vocab_size=vocab_size,
        initial_alphabet=sorted(alphabet),
        special_tokens=[*SPECIAL, *continuations],
        show_progress=False,
    )
    trained = Backend(_wordpiece_model({}))
    trained.train_from_iterator(repeat_words(known_words), trainer)
    backend.model = _wordpiece_model(trained.get_vocab())
    return backend


def _wordpiece_model(vocab: dict[str, int]) -> models.WordPiece:
    return models.WordPiece(vocab, unk_token=UNK, max_input_chars_per_word=MAX_WORD_CHARACTERS)


TO_BYTES = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)

# Without merges a model of single characters or bytes needs no words, only runs short enough to
# stay in the processor's cache; a run for each character would take four times as long.
RUNS = pre_tokenizers.Split(Regex(r"[\s\S]{1,1024}"), "isolated")

RUNS_OF_BYTES = pre_tokenizers.Sequence([RUNS, TO_BYTES])


def bpe(texts: Iterable[str], vocab_size: int) -> Backend:
    """Byte-level BPE: frequent pairs of neighbours merge (Sennrich et al. 2016)."""
    backend = Backend(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(WORDS, "isolated"), TO_BYTES]
    )
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        initial_alphabet=list(BYTE_ALPHABET),
        special_tokens=list(SPECIAL),
        show_progress=False,
    )
    backend.train_from_iterator(checked_texts(texts), trainer)
    return backend


def characters(texts: Iterable[str], vocab_size: int) -> Backend:
    """One token per character; those that do not fit, the rarest, are unk."""
    counts = Counter[str]()
    for text in checked_texts(texts):
        counts.update(text)
    alphabet = most_frequent(counts, vocab_size - len(SPECIAL))
    backend = Backend(models.BPE(_vocab(sorted(alphabet)), [], unk_token=UNK))
    backend.pre_tokenizer = RUNS
    backend.decoder = decoders.Fuse()
    return backend


def bytes_(texts: Iterable[str], vocab_size: int) -> Backend:
    """One token per byte of UTF-8; nothing is learned."""
    for _ in checked_texts(texts):
        pass
    backend = Backend(models.BPE(_vocab(BYTE_ALPHABET), []))
    backend.pre_tokenizer = RUNS_OF_BYTES
    backend.decoder = decoders.ByteLevel()
    return backend


class TokenizerKind(NamedTuple):
    train: Callable[[Iterable[str], int], Backend]
    min_size: int  # of the vocabulary, special tokens aside
    reason: str  # what these tokens are


BY_NAME = {
    "bpe": TokenizerKind(bpe, len(BYTE_ALPHABET), f"{len(BYTE_ALPHABET)} bytes"),
    "wordpiece": TokenizerKind(
        wordpiece, 2, "a character that begins and one that continues a word"
    ),
    "unigram": TokenizerKind(unigram, 1, "one character"),
    "characters": TokenizerKind(characters, 1, "one character"),
    "bytes": TokenizerKind(bytes_, len(BYTE_ALPHABET), f"{len(BYTE_ALPHABET)} bytes"),
}

TOKENIZER_KINDS = tuple(BY_NAME)


def train_backend(name: str, texts: Iterable[str], vocab_size: int) -> Backend:
    """A tokenizer of the library with at most `vocab_size` tokens, special ones included."""
    if name not in BY_NAME:
        raise UsageError(unknown("tokenizer", name, TOKENIZER_KINDS))
    kind = BY_NAME[name]
    min_size = len(SPECIAL) + kind.min_size
    if vocab_size < min_size:
        raise UsageError(
            f"vocab_size={vocab_size} is too small for {name}: {len(SPECIAL)} special tokens "
            f"and {kind.reason} need {min_size}"
        )
    backend = kind.train(texts, vocab_size)
    backend.add_special_tokens([AddedToken(token, normalized=False) for token in SPECIAL])
    return backend


def kind_of(backend: Backend) -> str:
    """Which of TOKENIZER_KINDS a tokenizer is, recognised by its parts."""
    model = backend.model
    if isinstance(model, models.WordPiece):
        return "wordpiece"
    if isinstance(model, models.Unigram):
        return "unigram"
    if not isinstance(model, models.BPE):
        raise DataError(
            f"a {type(model).__name__} tokenizer is none of {', '.join(TOKENIZER_KINDS)}"
        )
    # Characters and bytes are BPE models without merges; their pre-tokenizers tell them apart.
    pre_tokenizer = backend.pre_tokenizer
    for kind, runs in (("characters", RUNS), ("bytes", RUNS_OF_BYTES)):
        if pre_tokenizer is not None and pre_tokenizer.__getstate__() == runs.__getstate__():
            return kind
    return "bpe"


def spelling_of(backend: Backend) -> str:
    """How `display_token` reads its tokens: as `bytes`, `pieces` or `plain`."""
    match kind_of(backend):
        case "unigram":
            return "pieces"
        case "bytes":
            return "bytes"
        case "bpe":
            decoder = backend.decoder
            is_byte_level = decoder is not None and b"ByteLevel" in decoder.__getstate__()
            return "bytes" if is_byte_level else "pieces"
        case _:
            return "plain"


def _vocab(tokens: Iterable[str]) -> dict[str, int]:
    return {token: id for id, token in enumerate((*SPECIAL, *tokens))}
