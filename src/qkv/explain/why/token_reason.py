"""What is said of a token: what else could have come, how it came up, and which words decided."""

from dataclasses import dataclass

from qkv.explain.why.faithfulness import Faithfulness
from qkv.explain.why.given import Given, Likely
from qkv.explain.why.lens import Seen
from qkv.explain.why.words import Piece

WAYS = ("occlusion", "gradient")  # to rank words


@dataclass(frozen=True)
class TokenWord:
    """What one word, or mark, does for a token against another."""

    word: Piece
    occlusion: float | None  # how far the difference of the scores falls without it; marks stay
    gradient: float  # the slope of the difference times the embedding

    def json(self) -> dict[str, object]:
        return {**self.word.json(), "occlusion": self.occlusion, "gradient": self.gradient}


@dataclass(frozen=True)
class TokenReason:
    """Why `token` follows the prompt rather than `against`.

    difference: of their scores, which is the logarithm of how many times likelier it is.
    """

    prompt: str
    token: Likely
    against: Likely
    difference: float
    given: tuple[Given, ...]  # the tokens of the prompt
    following: tuple[Likely, ...]  # the likeliest to follow
    layers: tuple[Seen, ...]
    words: tuple[TokenWord, ...]
    marks: tuple[TokenWord, ...]
    hidden: str
    faithfulness: dict[str, Faithfulness]
    remarks: tuple[str, ...]

    def json(self) -> dict[str, object]:
        return {
            "prompt": self.prompt,
            "token": self.token.json(),
            "against": self.against.json(),
            "difference": self.difference,
            "given": [token.json() for token in self.given],
            "following": [token.json() for token in self.following],
            "layers": [layer.json() for layer in self.layers],
            "words": [word.json() for word in self.words],
            "marks": [mark.json() for mark in self.marks],
            "hidden": self.hidden,
            "faithfulness": {way: test.json() for way, test in self.faithfulness.items()},
            "remarks": list(self.remarks),
        }
