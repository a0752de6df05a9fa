"""Sections of the page: the prediction, and its attribution with how far to trust it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from qkv.interpret.attribution.attribute import Attribution
from qkv.interpret.attribution.attribution_text import visible_word
from qkv.interpret.attribution.label import LabelAttribution
from qkv.interpret.attribution.token import TokenAttribution
from qkv.interpret.attribution.translation import TranslationAttribution
from qkv.interpret.attribution.vector import VectorAttribution
from qkv.interpret.attribution.words import WordSpan
from qkv.interpret.glass_box import TokenPrediction, prediction_of
from qkv.interpret.matrix import format_number
from qkv.interpret.trace import Trace
from qkv.report import escape, paragraph, section, table

Cell = str | float

COLOUR_LEVELS = 5  # of page.css; the policy of the page forbids styles in attributes

COLOUR_LEGEND = (
    "Blue words push towards this answer, orange underlined ones against it; the deeper the "
    "colour, the larger the effect."
)
DISTANCE_LEGEND = "The deeper the colour, the more the vector changes without the word."


@dataclass(frozen=True)
class Section:
    """A heading with a sentence and a table; what is empty is left out.

    faithfulness: what deleting the words named does to the prediction, compared with random ones;
    one paragraph per line. text: the text explained, in runs, each with the effect that colours it;
    legend: what the colours mean.
    """

    title: str
    lead: str = ""
    columns: tuple[str, ...] = ()
    rows: tuple[tuple[Cell, ...], ...] = ()
    faithfulness: str = ""
    text: tuple[tuple[str, float], ...] = ()
    legend: str = ""


def section_markup(content: Section) -> str:
    """The section as HTML; all text is escaped."""
    parts = []
    if content.lead:
        parts.append(paragraph(content.lead))
    if content.text:
        parts.append(_coloured_text(content.text))
    if content.legend:
        parts.append(f'<p class="lead">{escape(content.legend)}</p>')
    if content.rows:
        parts.append(_table(content))
    if content.faithfulness:
        trust = "\n".join(map(paragraph, content.faithfulness.splitlines()))
        parts.append(f'<div class="trust">{trust}</div>')
    return f'<div class="why">\n{section(content.title, *parts)}\n</div>'


def _coloured_text(text: Sequence[tuple[str, float]]) -> str:
    """The text with each run in the colour of its effect, in as many levels as page.css has."""
    largest = max(abs(effect) for _, effect in text) or 1.0
    markup = ""
    for run, effect in text:
        level = round(COLOUR_LEVELS * abs(effect) / largest)
        if not level:
            markup += escape(run)
            continue
        direction = "for" if effect > 0 else "against"
        title = format_number(effect, 4)
        markup += f'<mark class="{direction} level-{level}" title="{title}">{escape(run)}</mark>'
    return f'<p class="coloured" dir="auto">{markup}</p>'


def _table(content: Section) -> str:
    rows = [
        [cell if isinstance(cell, str) else format_number(cell, 4) for cell in row]
        for row in content.rows
    ]
    return table(content.title, content.columns, rows, texts=_count_text_columns(content.rows))


def _count_text_columns(rows: Sequence[tuple[Cell, ...]]) -> int:
    """How many columns from the left hold words rather than numbers."""
    for column in range(len(rows[0])):
        if not any(isinstance(row[column], str) for row in rows):
            return column
    return len(rows[0])


def attribution_sections(attribution: Attribution) -> list[Section]:
    """The words that decided; for a token also what each layer would have predicted."""
    match attribution:
        case LabelAttribution():
            return [_label_section(attribution)]
        case TokenAttribution():
            return [_token_section(attribution), _layer_section(attribution)]
        case TranslationAttribution():
            return [_translation_section(attribution)]
        case VectorAttribution():
            rows = tuple(
                (visible_word(word.word.text), word.cosine_distance) for word in attribution.words
            )
            title = "Which words make the vector"
            effects = [(word.word, word.cosine_distance) for word in attribution.words]
            text = coloured_runs(attribution.text, effects)
            section = _word_section(title, attribution, ("1 − cosine",), rows, text)
            return [replace(section, legend=DISTANCE_LEGEND)]


def _label_section(attribution: LabelAttribution) -> Section:
    rows = tuple(
        (visible_word(word.word.text), word.occlusion or 0.0, word.gradients, word.attention)
        for word in attribution.words
    )
    columns = ("log-odds lost without it", "integrated gradients", "attention it got")
    title = f"Which words made it “{attribution.label}” ({attribution.probability:.4f})"
    effects = [(word.word, word.occlusion or 0.0) for word in attribution.words]
    text = coloured_runs(attribution.text, effects)
    return _word_section(title, attribution, columns, rows, text)


def _token_section(attribution: TokenAttribution) -> Section:
    title = f"Why “{attribution.token.token}” rather than “{attribution.against.token}”"
    rows = tuple(
        (visible_word(word.word.text), word.occlusion or 0.0, word.gradient)
        for word in attribution.words
    )
    columns = ("log-odds lost without it", "gradient × input")
    effects = [(word.word, word.occlusion or 0.0) for word in attribution.words]
    text = coloured_runs(attribution.prompt, effects)
    return _word_section(title, attribution, columns, rows, text)


def _layer_section(attribution: TokenAttribution) -> Section:
    """The logit lens: the output head applied after each layer."""
    rows = []
    for layer in attribution.layers:
        # Readout 0 is before any layer, so readout n is after layer n − 1.
        name = "the embedding"
        if layer.layer:
            name = f"layer {layer.layer - 1}"
        rows.append((name, layer.best, layer.best_probability, layer.probability))
    columns = ("after", "it would say", "likely", f"“{attribution.token.token}” likely")
    lead = "The last norm and the output, applied after each layer: only the last was trained so."
    return Section("What it would have said after each layer", lead, columns, tuple(rows))


def _translation_section(attribution: TranslationAttribution) -> Section:
    names = [visible_word(word.word.text) for word in attribution.sources]
    rows = []
    for word in attribution.targets:
        source = "nothing"
        if word.depends_on is not None:
            source = names[word.depends_on]
        remark = ""
        if word.hallucinated:
            remark = "invented?"
        elif not word.agrees:
            remark = "differ"
        row = (
            visible_word(word.word.text),
            names[word.most_attended],
            source,
            remark,
            word.probability,
            max(word.ablation),
        )
        rows.append(row)
    columns = ("word", "looked at", "depends on", "", "probability", "log p lost without it")
    lead = ""
    if attribution.omitted:
        words = ", ".join(f"“{word.word.text}”" for word in attribution.omitted)
        lead = f"Dropped from the source, it seems: {words}."
    trust = _trust(attribution)
    return Section("Where each word comes from", lead, columns, tuple(rows), trust)


def _word_section(
    title: str,
    attribution: Attribution,
    columns: tuple[str, ...],
    rows: tuple[tuple[Cell, ...], ...],
    text: tuple[tuple[str, float], ...],
) -> Section:
    lead = (
        f"Each word is hidden in turn ({attribution.occlusion_method}) and the output is compared "
        "with that of the whole text."
    )
    trust = _trust(attribution)
    legend = COLOUR_LEGEND if text else ""
    return Section(title, lead, ("word", *columns), rows, trust, text, legend)


def coloured_runs(
    text: str, effects: Sequence[tuple[WordSpan, float]]
) -> tuple[tuple[str, float], ...]:
    """The text cut into words and what stands between them, each with its effect."""
    runs = []
    end = 0
    for word, effect in sorted(effects, key=lambda pair: pair[0].start):
        if word.start > end:
            runs.append((text[end : word.start], 0.0))
        runs.append((text[max(word.start, end) : word.end], effect))
        end = max(end, word.end)
    if runs and end < len(text):
        runs.append((text[end:], 0.0))
    return tuple(runs)


def _trust(attribution: Attribution) -> str:
    """The verdict of each faithfulness test, then the remarks; one per line."""
    tests = attribution.faithfulness
    lines = []
    if isinstance(tests, dict):
        lines += [f"{method}: {test.trust.verdict}" for method, test in tests.items()]
    elif tests is not None:
        lines.append(tests.trust.verdict)
    return "\n".join([*lines, *attribution.remarks])


def output_payload(trace: Trace) -> dict[str, Any] | None:
    """Title, sentence, and the most probable tokens or labels at each position, for the script.

    None if the output was not captured.
    """
    prediction = prediction_of(trace)
    if prediction is None:
        return None
    if prediction.vector is not None:
        sentence = f"{prediction.sentence} Texts that mean alike have vectors that point alike."
        vector = trace.node("output").name
        return {"title": "The vector of the text", "sentence": sentence, "vector": vector}
    positions = [_position_payload(position) for position in prediction.positions]
    if prediction.positions[0].token is None:
        words = {"title": prediction.title, "sentence": prediction.sentence}
    elif any(name.startswith("decoder.") for name in trace.graph.nodes):
        words = {
            "title": "What comes next",
            "sentence": "After each position the model shares out 100 % among all tokens; "
            "choose a position to see the likeliest.",
            "after": "next after",
        }
    else:
        words = {
            "title": "What may stand there",
            "sentence": "At each position the model shares out 100 % among all tokens; "
            "choose a position to see the likeliest.",
            "after": "in the place of",
        }
    return words | {"positions": positions}


def _position_payload(position: TokenPrediction) -> dict[str, Any]:
    best = [
        {
            "name": candidate.name,
            "probability": _json_number(candidate.probability),
            "logit": _json_number(candidate.score),
        }
        for candidate in position.best
    ]
    return {"token": position.token, "best": best}


def _json_number(number: float) -> float | str:
    """A number for JSON, which has no NaN and no ∞: those are strings that JavaScript reads."""
    if np.isfinite(number):
        return float(number)
    return str(float(number)).replace("inf", "Infinity")
