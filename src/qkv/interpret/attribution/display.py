"""How an attribution shows itself: a line in a terminal, coloured words in a notebook.

`print(attribution)` shows the whole table, as `qkv explain --why` does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from qkv.report import escape

if TYPE_CHECKING:
    from qkv.interpret.attribution.answer import AnswerAttribution
    from qkv.interpret.attribution.attribute import SimilarityAttribution
    from qkv.interpret.attribution.label import LabelAttribution
    from qkv.interpret.attribution.token import TokenAttribution
    from qkv.interpret.attribution.translation import TranslationAttribution
    from qkv.interpret.attribution.vector import VectorAttribution

    AnyAttribution: TypeAlias = (
        LabelAttribution
        | TokenAttribution
        | TranslationAttribution
        | VectorAttribution
        | SimilarityAttribution
        | AnswerAttribution
    )

MAX_NAMED_WORDS = 3
MAX_TEXT_LENGTH = 60  # characters of a text in a line
RAISES = "43,116,179"
LOWERS = "190,60,50"


class WordEffect(NamedTuple):
    """A word, or a pair of words, and how much it contributes."""

    text: str
    effect: float


class Displayed:
    """Adds `repr`, `str` and the HTML of notebooks to an attribution."""

    def __repr__(self) -> str:
        return summary_line(self)  # type: ignore[arg-type]

    def __str__(self) -> str:
        from qkv.interpret.attribution.attribution_text import attribution_lines

        return "\n".join(attribution_lines(self))  # type: ignore[arg-type]

    def _repr_html_(self) -> str:
        """The words coloured by their contribution, and the table behind a click."""
        effects = word_effects(self)  # type: ignore[arg-type]
        strongest = max((abs(word.effect) for word in effects), default=0.0) or 1.0
        words = " ".join(_coloured(word, strongest) for word in effects)
        title = escape(_question(self))  # type: ignore[arg-type]
        trust = escape(_trust(self))  # type: ignore[arg-type]
        table = f"<details><summary>table</summary><pre>{escape(str(self))}</pre></details>"
        return f"<div><p><b>{title}</b></p><p>{words}</p><p>{trust}</p>{table}</div>"


def summary_line(attribution: AnyAttribution) -> str:
    """What is explained, the words that contribute most, and how far to trust that."""
    from qkv.interpret.attribution.attribution_text import format_signed, visible_word

    strongest = sorted(word_effects(attribution), key=lambda word: -abs(word.effect))
    named = ", ".join(
        f"“{visible_word(word.text)}” {format_signed(word.effect)}"
        for word in strongest[:MAX_NAMED_WORDS]
    )
    words = f"Most by {named}; " if named else ""
    line = f"{_question(attribution)} {words}{_trust(attribution)}"
    return f"<{type(attribution).__name__}: {line}; print() shows the table>"


def word_effects(attribution: AnyAttribution) -> list[WordEffect]:
    """The contribution of every word, in the order of the text."""
    from qkv.interpret.attribution.answer import AnswerAttribution
    from qkv.interpret.attribution.attribute import SimilarityAttribution
    from qkv.interpret.attribution.translation import TranslationAttribution
    from qkv.interpret.attribution.vector import VectorAttribution

    match attribution:
        case AnswerAttribution():
            pairs = zip(attribution.words, attribution.effects, strict=True)
            return [WordEffect(word.text, effect) for word, effect in pairs]
        case TranslationAttribution():
            return [WordEffect(each.word.text, each.max_effect) for each in attribution.sources]
        case VectorAttribution():
            return [WordEffect(each.word.text, each.cosine_distance) for each in attribution.words]
        case SimilarityAttribution():
            return [
                WordEffect(f"{pair.a} · {pair.b}", pair.contribution) for pair in attribution.pairs
            ]
        case _:
            return [WordEffect(each.word.text, each.occlusion or 0.0) for each in attribution.words]


def _question(attribution: AnyAttribution) -> str:
    from qkv.interpret.attribution.answer import AnswerAttribution
    from qkv.interpret.attribution.attribute import SimilarityAttribution
    from qkv.interpret.attribution.label import LabelAttribution
    from qkv.interpret.attribution.token import TokenAttribution
    from qkv.interpret.attribution.translation import TranslationAttribution

    match attribution:
        case LabelAttribution():
            return f"why “{attribution.label}” ({attribution.probability:.3f})?"
        case TokenAttribution():
            token = f"“{attribution.token.token}” ({attribution.token.probability:.3f})"
            other = f"“{attribution.against.token}” ({attribution.against.probability:.3f})"
            return f"why {token} rather than {other}?"
        case TranslationAttribution():
            return f"why {_shorten(attribution.source)} → {_shorten(attribution.target)}?"
        case SimilarityAttribution():
            return f"why a cosine of {attribution.cosine:.4f}?"
        case AnswerAttribution():
            return f"why “{_shorten(attribution.answer)}”?"
        case _:
            return f"which words make the vector of “{_shorten(attribution.text)}”?"


def _trust(attribution: AnyAttribution) -> str:
    """Whether the ranking is better than chance, by the first method that was tested."""
    tests = attribution.faithfulness
    if isinstance(tests, dict):
        tests = next(iter(tests.values()), None)
    if tests is None:
        return "not tested"
    match tests.trust.better:
        case True:
            return "better than chance"
        case False:
            return "not better than chance, do not rely on it"
        case _:
            return "too few words to tell it from chance"


def _coloured(word: WordEffect, strongest: float) -> str:
    """A word on blue that contributes to the output, or on red that lowers it."""
    from qkv.interpret.attribution.attribution_text import format_signed

    colour = RAISES if word.effect >= 0 else LOWERS
    strength = abs(word.effect) / strongest
    style = f"background:rgba({colour},{strength:.2f});padding:0 2px"
    return f'<span style="{style}" title="{format_signed(word.effect)}">{escape(word.text)}</span>'


def _shorten(text: str) -> str:
    line = " ".join(text.split())
    if len(line) <= MAX_TEXT_LENGTH:
        return line
    return f"{line[:MAX_TEXT_LENGTH]}…"
