"""A piece of explanation that comes with the trace: a sentence, a table, how far to trust it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from qkv.interpret.attribution.attribute import Attribution
from qkv.interpret.attribution.attribution_text import visible_word
from qkv.interpret.attribution.label import LabelAttribution
from qkv.interpret.attribution.token import TokenAttribution
from qkv.interpret.attribution.translation import TranslationAttribution
from qkv.interpret.attribution.vector import VectorAttribution
from qkv.interpret.glass_box import TokenPrediction, prediction_of
from qkv.interpret.matrix import format_number
from qkv.interpret.trace import Trace
from qkv.report.html import paragraph, section, table

# FOLDED explain/page/reasons: Why the model answered so, as sections of the page, each with how
#   far to trust it.
# FOLDED explain/page/answer: What the model answered, as the page tells it: tokens, labels, or
#   a vector.

Cell = str | float


@dataclass(frozen=True)
class Section:
    """What stands under one heading; whatever is empty is left out.

    faithfulness: what deleting the things named does to the answer, against random ones; a
    paragraph a line.
    """

    title: str
    lead: str = ""
    columns: tuple[str, ...] = ()
    rows: tuple[tuple[Cell, ...], ...] = ()
    faithfulness: str = ""


def section_markup(shown: Section) -> str:
    """The section as HTML in which nothing that a text holds can act."""
    trust = "\n".join(map(paragraph, shown.faithfulness.splitlines()))
    inside = section(
        shown.title,
        paragraph(shown.lead) if shown.lead else "",
        _table(shown),
        f'<div class="trust">{trust}</div>' if trust else "",
    )
    return f'<div class="why">\n{inside}\n</div>'


def _table(shown: Section) -> str:
    if not shown.rows:
        return ""
    return table(
        shown.title,
        shown.columns,
        [
            [cell if isinstance(cell, str) else format_number(cell, 4) for cell in row]
            for row in shown.rows
        ],
        texts=_texts(shown.rows),
    )


def _texts(rows: Sequence[tuple[Cell, ...]]) -> int:
    """How many columns from the left hold words rather than numbers."""
    words = [any(isinstance(row[at], str) for row in rows) for at in range(len(rows[0]))]
    return words.index(False) if False in words else len(words)


def sections(reason: Attribution) -> list[Section]:
    """One section for the words that decided, and for a token what each layer would have said."""
    match reason:
        case LabelAttribution():
            return [_label(reason)]
        case TokenAttribution():
            return [_token(reason), _layers(reason)]
        case TranslationAttribution():
            return [_translation(reason)]
        case VectorAttribution():
            rows = tuple(
                (visible_word(word.word.text), word.cosine_distance) for word in reason.words
            )
            return [_words("Which words make the vector", reason, ("1 − cosine",), rows)]


def _label(reason: LabelAttribution) -> Section:
    rows = tuple(
        (visible_word(word.word.text), word.occlusion or 0.0, word.gradients, word.attention)
        for word in reason.words
    )
    columns = ("log-odds lost without it", "integrated gradients", "attention it got")
    title = f"Which words made it “{reason.label}” ({reason.probability:.4f})"
    return _words(title, reason, columns, rows)


def _token(reason: TokenAttribution) -> Section:
    title = f"Why “{reason.token.token}” rather than “{reason.against.token}”"
    rows = tuple(
        (visible_word(word.word.text), word.occlusion or 0.0, word.gradient)
        for word in reason.words
    )
    return _words(title, reason, ("log-odds lost without it", "slope × input"), rows)


def _layers(reason: TokenAttribution) -> Section:
    rows = tuple(
        (
            f"layer {layer.layer - 1}" if layer.layer else "the embedding",
            layer.best,
            layer.best_probability,
            layer.probability,
        )
        for layer in reason.layers
    )
    asked = f"“{reason.token.token}”"
    columns = ("after", "it would say", "likely", f"{asked} likely")
    lead = "The last norm and the output, applied after each layer: only the last was trained so."
    return Section("What it would have said after each layer", lead, columns, rows)


def _translation(reason: TranslationAttribution) -> Section:
    names = [visible_word(word.word.text) for word in reason.sources]
    rows = tuple(
        (
            visible_word(word.word.text),
            names[word.most_attended],
            "nothing" if word.depends_on is None else names[word.depends_on],
            "invented?" if word.hallucinated else "" if word.agrees else "differ",
            word.probability,
            max(word.ablation),
        )
        for word in reason.targets
    )
    columns = ("word", "looked at", "depends on", "", "probability", "log p lost without it")
    dropped = ", ".join(f"“{word.word.text}”" for word in reason.omitted)
    lead = f"Dropped from the source, it seems: {dropped}." if dropped else ""
    return Section("Where each word comes from", lead, columns, rows, _trust(reason))


def _words(
    title: str, reason: Attribution, columns: tuple[str, ...], rows: tuple[tuple[Cell, ...], ...]
) -> Section:
    hidden = getattr(reason, "hidden", "")
    lead = f"To hide a word: {hidden}." if hidden else ""
    return Section(title, lead, ("word", *columns), rows, _trust(reason))


def _trust(reason: Attribution) -> str:
    tests = reason.faithfulness
    named = tests if isinstance(tests, dict) else {} if tests is None else {"": tests}
    said = [
        f"{way}: {test.trust.verdict}" if way else test.trust.verdict for way, test in named.items()
    ]
    return "\n".join([*said, *reason.remarks])


CHOOSE = "; choose a position to see the likeliest."


def answer(trace: Trace) -> dict[str, Any] | None:
    """Title, sentence, and the likeliest answers at each position; None if nothing was kept."""
    found = prediction_of(trace)
    if found is None:
        return None
    if found.vector is not None:
        alike = f"{found.sentence} Texts that mean alike have vectors that point alike."
        name = trace.node("output").name
        return {"title": "The vector of the text", "sentence": alike, "vector": name}
    positions = [_position(position) for position in found.positions]
    if found.positions[0].token is None:
        return {"title": found.title, "sentence": found.sentence, "positions": positions}
    return _by_token(trace) | {"positions": positions}


def answer_names(trace: Trace) -> list[str]:
    """What each number of the answer is called: a token, a label, or its number."""
    return [trace.output_name(at) for at in range(trace["output"].shape[-1])]


def told(number: float) -> float | str:
    """A number for JSON, which has no word for what is none, nor for ∞."""
    return float(number) if np.isfinite(number) else str(float(number)).replace("inf", "Infinity")


def _by_token(trace: Trace) -> dict[str, str]:
    if any(name.startswith("decoder.") for name in trace.graph.nodes):
        said = f"After each position the model shares out 100 % among all tokens{CHOOSE}"
        return {"title": "What comes next", "sentence": said, "after": "next after"}
    said = f"At each position the model shares out 100 % among all tokens{CHOOSE}"
    return {"title": "What may stand there", "sentence": said, "after": "in the place of"}


def _position(position: TokenPrediction) -> dict[str, Any]:
    best = [
        {"name": one.name, "probability": told(one.probability), "score": told(one.score)}
        for one in position.best
    ]
    return {"token": position.token, "best": best}
