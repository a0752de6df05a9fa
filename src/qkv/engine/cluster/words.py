"""Where words stand in a text, in any script: letters with their combining marks and digits.

Chinese, Japanese, Thai and their neighbours write without spaces. There each character stands
alone, or, where words are counted, two characters beside each other stand in for a word.
"""

from collections.abc import Sequence
from functools import cache

from tokenizers import Regex
from tokenizers.pre_tokenizers import PreTokenizer, Split

UNSPACED = r"\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}"
LETTERS = rf"[\p{{L}}\p{{M}}\p{{N}}&&[^{UNSPACED}]]"
WORD = rf"{LETTERS}+(?:['’]{LETTERS}+)*"
SIGN = r"[^\s\p{L}\p{M}\p{N}]"

Span = tuple[int, int]


def word_spans(text: str) -> list[Span]:
    """Each word, each character without spaces around it, and each sign: (first, after last)."""
    return [span for _, span in _cut(rf"{WORD}|[{UNSPACED}]|{SIGN}").pre_tokenize_str(text)]


def tokens_of_words(text: str, tokens: Sequence[Span]) -> list[tuple[Span | None, list[int]]]:
    """The tokens (by the characters each covers) that share a word, in order.

    Each group with all the characters of its words; a token may cover several. Tokens that cover
    no word, but a space or nothing at all, go with the word after them; None is the span of those
    behind the last word.
    """
    found: list[tuple[Span | None, list[int]]] = []
    words, word = word_spans(text), 0
    for at, (start, end) in enumerate(tokens):
        while word < len(words) and words[word][1] <= start:
            word += 1
        after = word
        while after < len(words) and words[after][0] < end:
            after += 1
        span = (words[word][0], words[after - 1][1]) if after > word else None
        before, group = found[-1] if found else ((0, 0), [])
        if before is None:
            found[-1] = (span, [*group, at])
        elif span and span[0] < before[1]:
            found[-1] = ((before[0], max(before[1], span[1])), [*group, at])
        else:
            found.append((span, [at]))
    return found


def counted_words(text: str) -> list[str]:
    """What a text is counted by, in lower case: words of two characters or more, no numbers."""
    lower = text.lower()
    words = [word for word, _ in _cut(WORD).pre_tokenize_str(lower)]
    found = [word for word in words if len(word) > 1 and not word.isnumeric()]
    for run, _ in _cut(f"[{UNSPACED}]+").pre_tokenize_str(lower):
        found += [run[i : i + 2] for i in range(max(1, len(run) - 1))]
    return found


@cache
def _cut(pattern: str) -> PreTokenizer:
    """Gives the parts of a text that match, and leaves out the others."""
    return Split(Regex(pattern), "removed", invert=True)
