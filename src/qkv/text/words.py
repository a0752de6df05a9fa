"""Where words end, and how often each one occurs: what vocabularies are learned from."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from tokenizers import Regex
from tokenizers import Tokenizer as Backend

from qkv.errors import DataError

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
        refuse_half_characters(text)
        empty = empty and not text
        yield text
    if empty:
        raise DataError("there is no text to learn a tokenizer from; every text given is empty")


def refuse_half_characters(text: str) -> None:
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
