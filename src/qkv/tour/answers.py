"""What the three models answered, in lines for the terminal."""

from collections.abc import Iterator, Sequence
from textwrap import wrap

from qkv.explain.why.label_reason import LabelWord
from qkv.files import one_line
from qkv.tour.looks import Judgement, Rendering
from qkv.tour.text import WIDTH, said

WORDS = 3  # that are named for a label
DOUBT = "; where it does not (?), do not rely on them."


def judged(found: Sequence[Judgement]) -> Iterator[str]:
    """Each review with its label and the words that made it; then how far to trust that."""
    for each in found:
        reason = each.reason
        yield ""
        yield from said(each.review.text)
        wrong = "" if each.right else f", but it is {each.review.label}"
        yield f"  → {reason.label} ({reason.probability:.3f}){wrong}"
        words = ", ".join(map(_weighed, strongest(each)))
        doubt = "" if each.sure else " (?)"
        yield from said(f"made by {words}{doubt}" if words else "no one word made it", "    ")
    yield ""
    yield from said(
        "In brackets: how far the log-odds of the label fall without the word. "
        + trust([each.sure for each in found], "deleting", "reviews")
    )


def trust(sure: Sequence[bool], doing: str, texts: str) -> str:
    """For how many of the texts the words named are better than chance, and what (?) says."""
    return (
        f"For {sum(sure)} of {len(sure)} {texts}, {doing} the words named moves the answer "
        f"clearly more than {doing} random ones{DOUBT if not all(sure) else '.'}"
    )


def strongest(judgement: Judgement) -> list[LabelWord]:
    """The words without which the label would be least sure, in the order of the text."""
    words = judgement.reason.words
    order = sorted(words, key=lambda word: -(word.occlusion or 0.0))[:WORDS]
    return [word for word in words if word in order and (word.occlusion or 0.0) > 0]


def written(paragraph: str) -> Iterator[str]:
    """What the language model wrote, between bars."""
    yield ""
    for line in paragraph.rstrip().splitlines():
        for folded in wrap(line, WIDTH - 4, drop_whitespace=False) or [""]:
            yield f"  │ {folded}".rstrip()


def rendered(found: Sequence[Rendering]) -> Iterator[str]:
    """Each sentence, its translation, and the source word that each word looked at."""
    for each in found:
        yield ""
        yield from said(each.pair.source)
        yield from said(f"→ {each.reason.target}", "  ")
        if not each.right:
            yield from said(f"it should be: {each.pair.target}", "    ")
        doubt = "" if each.sure else " (?)"
        yield from said(" · ".join(links(each)) + doubt, "    ")
    yield ""
    yield from said(
        "After ←: the source word that got most of its attention. "
        + trust([each.sure for each in found], "hiding", "sentences")
    )


def links(rendering: Rendering) -> list[str]:
    """Word by word, full stops and the like left out."""
    reason = rendering.reason
    return [
        f"{word.word.text} ← {reason.sources[word.looked_at].word.text}"
        for word in reason.targets
        if any(letter.isalnum() for letter in word.word.text)
    ]


def _weighed(word: LabelWord) -> str:
    return f"{one_line(word.word.text)} [{word.occlusion or 0.0:+.1f}]".replace("-", "−")
