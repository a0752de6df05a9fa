"""The five ways to cut text into tokens, and how each one learns its vocabulary.

The special tokens come first. No word holds "<" and a letter both, so no learned token can be
spelled like a special one: in a user's text "<pad>" is five characters and nothing else. The
same texts give the same vocabulary in every process.
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers, trainers
from tokenizers import Tokenizer as Backend

from qkv.errors import DataError, UsageError, unknown
from qkv.text.sentencepiece import SPACE

# FOLDED text/alphabet: What a vocabulary starts with: the special tokens, and for byte-level
#   kinds the 256 letters.
#
#   Byte-level tokenizers keep their tokens as strings, so each byte is written as one visible
#   character. A byte that is a visible Latin-1 character stands for itself; the others borrow
#   the
#   characters from U+0100 on, in order (GPT-2, Radford et al. 2019). So a space is "Ġ", and
#   "é" is
#   two letters, "Ã©".
# FOLDED text/words: Where words end, and how often each one occurs: what vocabularies are
#   learned from.
# FOLDED text/unigram: Unigram: of all frequent substrings, those that make the text most likely
#   (Kudo 2018).
# FOLDED text/wordpiece: WordPiece: neighbours inside lower-cased words merge; ## continues a
#   word (Schuster 2012).

SPECIAL = ("<pad>", "<unknown>", "<start>", "<end>", "<mask>")

UNKNOWN = SPECIAL[1]


def _letters() -> tuple[str, ...]:
    visible = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    borrowed = iter(range(0x100, 0x200))
    return tuple(chr(byte if byte in visible else next(borrowed)) for byte in range(256))


LETTERS = _letters()  # the letter of each byte

BYTES = {letter: byte for byte, letter in enumerate(LETTERS)}


def spell(token: str) -> str:
    """The text a byte-level token stands for; a byte that is only part of a character as \\xNN."""
    if not BYTES.keys() >= set(token):
        return token
    return bytes(BYTES[letter] for letter in token).decode("utf-8", errors="backslashreplace")


def people_read(token: str, spelling: str) -> str:
    """A token of the vocabulary as text; what cannot be seen is escaped.

    In `bytes` each letter is a byte; in `pieces` "▁" is a space and "<0x0A>" a byte; `plain`
    tokens are what they say.
    """
    if spelling == "bytes":
        token = spell(token)
    elif spelling == "pieces":
        byte = re.fullmatch("<0x([0-9A-F]{2})>", token)
        token = spell(LETTERS[int(byte[1], 16)]) if byte else token.replace(SPACE, " ")
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in token)


# The words of GPT-2, with combining marks among the letters. A run ends after 64 characters:
# inside a word merging costs more than its length, and a whole text may be one run.
WORDS = Regex(
    r"'(?:[sdmt]|ll|ve|re)"
    r"| ?[\p{L}\p{M}]{1,64}| ?\p{N}{1,64}| ?[^\s\p{L}\p{M}\p{N}]{1,64}"
    r"|\s{1,64}(?!\S)|\s{1,64}"
)


def readable(texts: Iterable[str]) -> Iterator[str]:
    """The texts as they are, refused if there is nothing in them or half a character."""
    empty = True
    for text in texts:
        check_no_surrogates(text)
        empty = empty and not text
        yield text
    if empty:
        raise DataError("there is no text to learn a tokenizer from; every text given is empty")


def check_no_surrogates(text: str) -> None:
    """Half of a surrogate pair is no character: it has no UTF-8 bytes and no token."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise DataError(
            f"text holds half a character (U+{ord(text[error.start]):04X}) at position "
            f"{error.start}; it has no UTF-8 form, so remove it or read the file again as UTF-8"
        ) from None


def words_of(backend: Backend, text: str) -> list[str]:
    """What this tokenizer cuts a text into before it looks for tokens; a whole text is one word."""
    normalizer, cuts = backend.normalizer, backend.pre_tokenizer
    clean = normalizer.normalize_str(text) if normalizer else text
    return [word for word, _ in cuts.pre_tokenize_str(clean)] if cuts else [clean]


def count_words(backend: Backend, texts: Iterable[str]) -> Counter[str]:
    """How often each word occurs, cut as this tokenizer cuts them."""
    words = Counter[str]()
    for text in readable(texts):
        words.update(words_of(backend, text))
    if not words:
        raise DataError("there is no word to learn a tokenizer from; all the texts are blank")
    return words


def count_characters(words: Mapping[str, int]) -> Counter[str]:
    characters = Counter[str]()
    for word, n in words.items():
        for character in word:
            characters[character] += n
    return characters


def most_frequent(counts: Mapping[str, int], room: int) -> set[str]:
    """As many as there is room for; of equally frequent ones those that sort first."""
    return set(sorted(counts, key=lambda name: (-counts[name], name))[:room])


def repeated(words: Mapping[str, int]) -> Iterator[str]:
    """Each word as often as it occurs, which is how the library takes a count."""
    return (word for word, n in words.items() for _ in range(n))


DIGITS = 6  # of a score, far above the noise in the library's sums


def unigram(texts: Iterable[str], vocabulary: int) -> Backend:
    """A space is "▁" in a piece; if there is no room for all characters the rarest are unknown."""
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
    known = most_frequent(characters, vocabulary - len(SPECIAL))
    rare = dict.fromkeys(map(ord, characters.keys() - known))
    trainer = trainers.UnigramTrainer(
        vocab_size=vocabulary,
        special_tokens=list(SPECIAL),
        unk_token=UNKNOWN,
        show_progress=False,
    )
    trained = Backend(models.Unigram())
    trained.train_from_iterator((word.translate(rare) for word in repeated(words)), trainer)
    pieces = _steady(_pieces(trained), vocabulary - len(SPECIAL))
    special = [(token, 0.0) for token in SPECIAL]
    backend.model = models.Unigram([*special, *pieces], unk_id=SPECIAL.index(UNKNOWN))
    return backend


def _steady(scores: dict[str, float], room: int) -> list[tuple[str, float]]:
    """The best pieces, best first, and all single characters, the same in every run.

    The library sums in the order of a random hash, which shows in the last bits of a score. It
    also gives characters that its pieces made superfluous the lowest score plus 0.0001 for each
    one before, again in random order; here all of them get the lowest.
    """
    floor = min(scores.values())
    ladder = floor + 0.0001 * (1 + sum(len(piece) == 1 for piece in scores))
    for piece, score in scores.items():
        low = len(piece) == 1 and score < ladder
        scores[piece] = round(floor if low else score, DIGITS)
    by_score = sorted(scores, key=lambda piece: (-scores[piece], piece))
    by_need = sorted(by_score, key=lambda piece: len(piece) > 1)  # the sort is stable
    kept = set(by_need[:room])
    return [(piece, scores[piece]) for piece in by_score if piece in kept]


def _pieces(trained: Backend) -> dict[str, float]:
    """What was learned, with scores, which the library shows only in its JSON."""
    pieces = json.loads(trained.to_str())["model"]["vocab"]
    # A text of nothing but NUL, the library's own end mark, has no scores.
    return {piece: score or 0.0 for piece, score in pieces if piece not in SPECIAL}


LONGEST = 100  # a longer word is unknown; finding its pieces would cost the square of its length


def wordpiece(texts: Iterable[str], vocabulary: int) -> Backend:
    """Accents and case are lost; if there is no room for all characters the rarest are unknown.

    The library numbers the ##c in the order of a random hash, and of two merges equally frequent
    takes the one numbered first. So they are named beforehand, as special tokens of a tokenizer
    of which only the vocabulary is kept (huggingface/tokenizers issue 1794).
    """
    backend = Backend(_model({}))
    backend.normalizer = normalizers.BertNormalizer(lowercase=True)
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.decoder = decoders.WordPiece()

    words = count_words(backend, texts)
    room = (vocabulary - len(SPECIAL)) // 2  # a character is c or ##c
    known = most_frequent(count_characters(words), room)
    whole = {w: n for w, n in words.items() if len(w) <= LONGEST and known.issuperset(w)}
    later = sorted({f"##{character}" for word in whole for character in word[1:]})
    trainer = trainers.WordPieceTrainer(
        vocab_size=vocabulary,
        initial_alphabet=sorted(known),
        special_tokens=[*SPECIAL, *later],
        show_progress=False,
    )
    trained = Backend(_model({}))
    trained.train_from_iterator(repeated(whole), trainer)
    backend.model = _model(trained.get_vocab())
    return backend


def _model(vocabulary: dict[str, int]) -> models.WordPiece:
    return models.WordPiece(vocabulary, unk_token=UNKNOWN, max_input_chars_per_word=LONGEST)


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

TOKENIZER_KINDS = tuple(BY_NAME)


def learn(name: str, texts: Iterable[str], vocabulary: int) -> Backend:
    """A tokenizer of the library with at most `vocabulary` tokens, special ones included."""
    if name not in BY_NAME:
        raise UsageError(unknown("tokenizer", name, TOKENIZER_KINDS))
    kind = BY_NAME[name]
    least = len(SPECIAL) + kind.least
    if vocabulary < least:
        raise UsageError(
            f"vocab_size={vocabulary} is too small for {name}: {len(SPECIAL)} special tokens and "
            f"{kind.because} need {least}"
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
        raise DataError(
            f"a {type(model).__name__} tokenizer is none of {', '.join(TOKENIZER_KINDS)}"
        )
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
