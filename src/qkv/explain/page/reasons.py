"""Why the model answered so, as sections of the page, each with how far to trust it."""

from __future__ import annotations

from qkv.explain.page.section import Cell, Section
from qkv.explain.why.ask import Reason
from qkv.explain.why.label_reason import LabelReason
from qkv.explain.why.token_reason import TokenReason
from qkv.explain.why.translation_reason import TranslationReason
from qkv.explain.why.vector import VectorReason
from qkv.explain.why.wording import seen


def sections(reason: Reason) -> list[Section]:
    """One section for the words that decided, and for a token what each layer would have said."""
    match reason:
        case LabelReason():
            return [_label(reason)]
        case TokenReason():
            return [_token(reason), _layers(reason)]
        case TranslationReason():
            return [_translation(reason)]
        case VectorReason():
            rows = tuple((seen(word.word.text), word.turned) for word in reason.words)
            return [_words("Which words make the vector", reason, ("1 − cosine",), rows)]


def _label(reason: LabelReason) -> Section:
    rows = tuple(
        (seen(word.word.text), word.occlusion or 0.0, word.gradients, word.attention)
        for word in reason.words
    )
    columns = ("log-odds lost without it", "integrated gradients", "attention it got")
    title = f"Which words made it “{reason.label}” ({reason.probability:.4f})"
    return _words(title, reason, columns, rows)


def _token(reason: TokenReason) -> Section:
    title = f"Why “{reason.token.token}” rather than “{reason.against.token}”"
    rows = tuple(
        (seen(word.word.text), word.occlusion or 0.0, word.gradient) for word in reason.words
    )
    return _words(title, reason, ("log-odds lost without it", "slope × input"), rows)


def _layers(reason: TokenReason) -> Section:
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


def _translation(reason: TranslationReason) -> Section:
    names = [seen(word.word.text) for word in reason.sources]
    rows = tuple(
        (
            seen(word.word.text),
            names[word.looked_at],
            "nothing" if word.moved_by is None else names[word.moved_by],
            "invented?" if word.invented else "" if word.agrees else "differ",
            word.probability,
            max(word.ablation),
        )
        for word in reason.targets
    )
    columns = ("word", "looked at", "depends on", "", "probability", "log p lost without it")
    dropped = ", ".join(f"“{word.word.text}”" for word in reason.dropped)
    lead = f"Dropped from the source, it seems: {dropped}." if dropped else ""
    return Section("Where each word comes from", lead, columns, rows, _trust(reason))


def _words(
    title: str, reason: Reason, columns: tuple[str, ...], rows: tuple[tuple[Cell, ...], ...]
) -> Section:
    hidden = getattr(reason, "hidden", "")
    lead = f"To hide a word: {hidden}." if hidden else ""
    return Section(title, lead, ("word", *columns), rows, _trust(reason))


def _trust(reason: Reason) -> str:
    tests = reason.faithfulness
    named = tests if isinstance(tests, dict) else {} if tests is None else {"": tests}
    said = [f"{way}: {test.trust.said}" if way else test.trust.said for way, test in named.items()]
    return "\n".join([*said, *reason.remarks])
