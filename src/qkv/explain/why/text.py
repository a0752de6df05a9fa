"""An explanation for the terminal: a table of its words, and sentences on how far to trust it."""

from collections.abc import Iterable, Sequence
from textwrap import wrap

from qkv.explain.render.page import Table
from qkv.explain.render.text import table_lines
from qkv.explain.why.ask import Reason
from qkv.explain.why.faithfulness import Faithfulness
from qkv.explain.why.label_reason import LabelReason
from qkv.explain.why.similar import SimilarReason
from qkv.explain.why.text_token import layer_table, surprise_table, title
from qkv.explain.why.text_translation import lost_and_added, translation_table
from qkv.explain.why.token_reason import TokenReason
from qkv.explain.why.translation_reason import TranslationReason
from qkv.explain.why.vector import VectorReason
from qkv.explain.why.wording import fell, number, seen, share
from qkv.explain.why.words import Piece

TOP = 15  # words, the strongest
WAYS = {"attention": "attention (where it looked)", "this": "it"}


def lines(reason: Reason | SimilarReason, width: int = 80, top: int = TOP) -> list[str]:
    """The explanation in lines of at most so many columns; of many words the strongest."""
    match reason:
        case LabelReason():
            parts = [*_label(reason, width, top), *_trust(reason.faithfulness, width)]
        case TokenReason():
            parts = [*_token(reason, width, top), *_trust(reason.faithfulness, width)]
        case TranslationReason():
            parts = [*_translation(reason, width), *_trust(reason.faithfulness, width)]
        case VectorReason():
            parts = [*_vector(reason, width, top), *_trust(_only(reason.faithfulness), width)]
        case SimilarReason():
            parts = [*_similar(reason, width, top), *_trust(_only(reason.faithfulness), width)]
    return [*parts, *_wrapped((f"note: {remark}" for remark in reason.remarks), width)]


def _label(reason: LabelReason, width: int, top: int) -> list[str]:
    chances = ", ".join(f"{label} {share(p)}" for label, p in reason.probabilities.items())
    head = [f"why “{reason.label}”?  {chances}", f"to hide a word: {reason.hidden}"]
    rows = [
        (
            word.word,
            word.occlusion or 0.0,
            [fell(word.occlusion), fell(word.gradients), share(word.attention)],
        )
        for word in reason.words
    ]
    table = _strongest(rows, ("without it", "gradients", "looked at"), width, top)
    whole = reason.completeness
    sums = (
        f"gradients: from a baseline where {reason.baseline}; they sum to {number(whole.sum)} of "
        f"{number(whole.difference)}, an error of {whole.error:.1%} in {whole.steps} steps"
    )
    marks = ", ".join(f"{seen(m.word.text)} {share(m.attention)}" for m in reason.marks)
    apart = [f"looks at marks: {marks}"] if marks else []
    return [*_wrapped(head, width), "", *table, "", *_wrapped([sums, *apart], width)]


def _token(reason: TokenReason, width: int, top: int) -> list[str]:
    rows = [
        (word.word, word.occlusion or 0.0, [fell(word.occlusion), fell(word.gradient)])
        for word in reason.words
    ]
    found = [*_wrapped(title(reason), width), ""]
    found += [*table_lines(surprise_table(reason), width), ""]
    found += [*table_lines(layer_table(reason), width), ""]
    if rows:
        found += [*_strongest(rows, ("without it", "slope × input"), width, top), ""]
    return found


def _translation(reason: TranslationReason, width: int) -> list[str]:
    head = _wrapped([f"{reason.source} → {reason.target}"], width)
    table = table_lines(translation_table(reason), width)
    return [*head, "", *table, "", *_wrapped(lost_and_added(reason), width), ""]


def _vector(reason: VectorReason, width: int, top: int) -> list[str]:
    rows = [(word.word, word.turned, [f"{word.turned:.4f}"]) for word in reason.words]
    head = _wrapped([f"to hide a word: {reason.hidden}"], width)
    return [*head, "", *_strongest(rows, ("1 − cosine without it",), width, top), ""]


def _similar(reason: SimilarReason, width: int, top: int) -> list[str]:
    shown = reason.pairs[:top]
    pairs = tuple(f"{seen(pair.a)} · {seen(pair.b)}" for pair in shown)
    cells = [[fell(pair.contribution, 4)] for pair in shown]
    table = table_lines(Table("", pairs, ("adds",), cells), width) if shown else []
    rest = reason.pairs[top:]
    more = sum(pair.contribution for pair in rest)
    others = [f"{len(rest)} other pairs add {number(more)}"] if rest else []
    return [f"cosine {reason.cosine:.4f}", *table, *others, ""]


def _strongest(
    rows: Sequence[tuple[Piece, float, list[str]]], columns: tuple[str, ...], width: int, top: int
) -> list[str]:
    order = sorted(range(len(rows)), key=lambda i: (-abs(rows[i][1]), i))[:top]
    if not order:
        return []
    names = tuple(seen(rows[i][0].text) for i in order)
    table = table_lines(Table("", names, columns, [rows[i][2] for i in order]), width)
    rest = len(rows) - len(order)
    return [*table, f"and {rest} other words"] if rest else table


def _trust(tests: dict[str, Faithfulness], width: int) -> list[str]:
    said = (f"trust {WAYS.get(way, way)}: {test.trust.said}" for way, test in tests.items())
    return _wrapped(said, width)


def _only(test: Faithfulness | None) -> dict[str, Faithfulness]:
    return {} if test is None else {"this": test}


def _wrapped(said: Iterable[str], width: int) -> list[str]:
    return [line for one in said for line in wrap(one, width) or [""]]
