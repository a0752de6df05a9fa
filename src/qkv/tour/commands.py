"""What to do next: commands for the three models of a tour, and for one's own files."""

import shlex
from pathlib import Path

REVIEW = "The hotel was never dull."
SENTENCE = "She arrives on May 2."

Lines = tuple[tuple[str, str], ...]  # a command and what it is for


def for_these(folder: Path) -> Lines:
    """Every one of these runs as it stands."""
    sentiment, language, translation = (
        shlex.quote(str(folder / name)) for name in ("sentiment", "language", "translation")
    )
    return (
        (f'qkv classify {sentiment} "{REVIEW}"', "a label"),
        (f'qkv explain "{REVIEW}" --model {sentiment} --why', "and the words that made it"),
        (f'qkv generate {language} "Return the" --max-tokens 60', "more of it"),
        (f'qkv translate {translation} "{SENTENCE}" --alignment', "word by word"),
        (f'qkv explain "{SENTENCE}" --model {translation} -o open.html', "all its numbers"),
        (f"qkv inspect {language}", "what it is made of"),
        (f"qkv check {translation}", "the proofs again"),
    )


def for_ones_own() -> Lines:
    """The same with a file of one's own."""
    return (
        ("qkv train classify reviews.csv -o runs/mine --minutes 5", "columns text and label"),
        ("qkv train language book.txt -o runs/book --minutes 5", "any text"),
        ("qkv train translate pairs.tsv -o runs/pairs --minutes 20", "columns source and target"),
        ("qkv evaluate runs/mine test.csv", "its scores on other data"),
        ("qkv cluster runs/mine texts.txt", "groups of similar texts"),
    )
