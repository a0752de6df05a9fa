"""The vocabulary in a GGUF file: its tokens, their sorts, and those with a part to play."""

from collections import Counter
from typing import NamedTuple

from qkv.errors import BundleError
from qkv.files import shown
from qkv.gguf.facts import Facts
from qkv.text.sentencepiece import BYTE, NORMAL

PREFIX = "tokenizer.ggml"

# Our word for each mark, and the file's.
MARKS = {"start": "bos", "end": "eos", "unknown": "unknown", "pad": "padding"}
# What llama.cpp takes for a SentencePiece vocabulary that does not say.
UNSAID = {"unknown": 0, "start": 1, "end": 2}


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
        raise BundleError(f"{facts.path} lists the token {shown(twice)} twice; it is damaged")
    return Vocabulary(tokens, sorts, mark_ids(facts, len(tokens)))


def token_count(facts: Facts) -> int:
    return len(facts.each(f"{PREFIX}.tokens", str, []))


def mark_ids(facts: Facts, tokens: int) -> dict[str, int | None]:
    """The token that starts a text, ends it, stands for what is unknown, and fills up rows."""
    plain = UNSAID if facts.text(f"{PREFIX}.model", "none") == "llama" else {}
    ids: dict[str, int | None] = {}
    for mark, stored in MARKS.items():
        key = f"{PREFIX}.{stored}_token_id"
        ids[mark] = facts.whole(key, least=0) if key in facts else plain.get(mark)
        if (ids[mark] or 0) >= tokens:
            raise BundleError(
                f"{facts.path}: {key} is {ids[mark]}, but the tokens are 0 to {tokens - 1}"
            )
    return ids
