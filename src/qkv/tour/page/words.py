"""Words with the part each has in a label: a bar, a number and a sign, never colour alone."""

from qkv.explain.why.label_reason import LabelReason, LabelWord
from qkv.explain.why.wording import fell
from qkv.report.markup import escaped
from qkv.tour.looks import Judgement

TALL = 2.4  # rem, of the highest bar


def judgement(found: Judgement) -> str:
    """The review word by word, and its label."""
    reason = found.reason
    most = max((abs(_part(word)) for word in reason.words), default=0.0) or 1.0
    words = "\n".join(_word(word, most) for word in reason.words)
    wrong = "" if found.right else f", but it is {found.review.label}"
    verdict = f"{reason.label} ({reason.probability:.3f}){wrong}"
    return f'<h3>{escaped(verdict)}</h3>\n<p class="words">\n{words}\n</p>\n{_trust(reason)}'


def _word(word: LabelWord, most: float) -> str:
    """A bar as high as its part is large, hatched where the word speaks against the label."""
    part = _part(word)
    kind, height = "for" if part >= 0 else "against", TALL * abs(part) / most
    return (
        f'<span class="word {kind}"><span class="bar" style="height:{height:.2f}rem">'
        f"</span><b>{escaped(word.word.text)}</b><small>{fell(part, 1)}</small></span>"
    )


def _trust(reason: LabelReason) -> str:
    test = reason.faithfulness.get("occlusion")
    said = "" if test is None else f"How far to trust this: {test.trust.said}."
    return f'<p class="note">{escaped(said)}</p>'


def _part(word: LabelWord) -> float:
    return word.occlusion or 0.0
