"""An explanation for the terminal: a table of its words, and sentences on how far to trust it."""

from collections.abc import Iterable, Sequence
from textwrap import wrap

from qkv.files import one_line
from qkv.interpret.attribution.attribute import Attribution, SimilarityAttribution
from qkv.interpret.attribution.faithfulness import Faithfulness
from qkv.interpret.attribution.label import LabelAttribution
from qkv.interpret.attribution.readouts import TokenProb
from qkv.interpret.attribution.token import TokenAttribution
from qkv.interpret.attribution.translation import TargetWord, TranslationAttribution
from qkv.interpret.attribution.vector import VectorAttribution
from qkv.interpret.attribution.words import Piece
from qkv.interpret.render.sections import TextTable
from qkv.interpret.render.terminal_text import table_lines

# FOLDED explain/why/wording: How numbers and words of an explanation are written for people.
# FOLDED explain/why/text_token: The tables of a token's explanation: how surprising the prompt
#   was, and what each layer said.
# FOLDED explain/why/text_translation: The explanation of a translation for the terminal: a line
#   a word, and what was lost or added.


def share(value: float) -> str:
    """A probability or a share: three decimals, and what is smaller is said to be."""
    return f"{value:.3f}" if value >= 0.001 or value == 0 else "<0.001"


def format_signed(value: float | None, decimals: int = 2) -> str:
    """With its sign, and a true minus."""
    return "" if value is None else f"{value:+.{decimals}f}".replace("-", "−")


def number(value: float) -> str:
    return f"{value:.3f}".replace("-", "−")


def visible_word(word: str) -> str:
    """On one line, and a space so that it can be seen."""
    return one_line(word) if word.strip() else repr(word)


SHOWN = 3  # alternatives


def title(reason: TokenAttribution) -> list[str]:
    """Which token against which, and how likely both are."""
    token, against = (
        f"“{one.token}” ({share(one.probability)})" for one in (reason.token, reason.against)
    )
    return [
        f"why {token} rather than {against}?  log-odds {number(reason.difference)}",
        f"next: {_several(reason.next_tokens)}",
        f"to hide a word: {reason.occlusion_method}",
    ]


def surprise_table(reason: TokenAttribution) -> TextTable:
    """Each token of the prompt, how likely it was, and what else might have come."""
    rows, cells = [], []
    for token in reason.prompt_tokens:
        rows.append(_shown(token.token))
        if token.probability is None or token.surprise is None:
            cells.append(["", "", "nothing stands before it"])
        else:
            bits = f"{token.surprise:.1f}"
            cells.append([share(token.probability), bits, _several(token.alternatives[:SHOWN])])
    return TextTable("token", tuple(rows), ("likely", "bits", "expected"), cells)


def layer_table(reason: TokenAttribution) -> TextTable:
    """The likeliest token after each layer, and how likely the asked one was there."""
    names = ["embedding", *(f"layer {seen.layer - 1}" for seen in reason.layers[1:])]
    cells = [
        [_shown(seen.best), share(seen.best_probability), share(seen.probability), f"{seen.rank}"]
        for seen in reason.layers
    ]
    columns = ("would say", "likely", f"{_shown(reason.token.token)} likely", "rank")
    return TextTable("after", tuple(names), columns, cells)


def _several(tokens: tuple[TokenProb, ...]) -> str:
    return ", ".join(f"{_shown(one.token)} {share(one.probability)}" for one in tokens)


def _shown(token: str) -> str:
    return f"“{token}”"


COLUMNS = ("likely", "looked at", "depends on", "")


def translation_table(reason: TranslationAttribution) -> TextTable:
    """Each target word, how likely it was, and the source words it goes back to."""
    names = [visible_word(word.word.text) for word in reason.sources]
    targets = tuple(visible_word(word.word.text) for word in reason.targets)
    return TextTable("", targets, COLUMNS, [_cells(word, names) for word in reason.targets])


def lost_and_added(reason: TranslationAttribution) -> list[str]:
    """How far looks and hiding agree, and which words may have been dropped or invented."""
    said = []
    if reason.agreement is not None:
        of_all = f"{reason.agreement:.0%} of the words"
        said.append(f"looks (layer {reason.layer}) and hiding agree on {of_all}")
    said += [
        f"dropped? “{word.word.text}”: hiding it moves no word by more than {number(word.moved)}"
        for word in reason.omitted
    ]
    said += [
        f"invented? “{word.word.text}”: no source word moves it by more than "
        f"{number(max(map(abs, word.ablation)))}, the whole source by {number(word.whole)}"
        for word in reason.hallucinated
    ]
    return said


def _cells(word: TargetWord, names: list[str]) -> list[str]:
    looked = f"{names[word.most_attended]} {share(max(word.attention))}"
    if word.depends_on is None:
        return [share(word.probability), looked, "", "invented?"]
    depends = f"{names[word.depends_on]} {format_signed(max(word.ablation))}"
    return [share(word.probability), looked, depends, "" if word.agrees else "differ"]


TOP = 15  # words, the strongest

WAYS = {"attention": "attention (where it looked)", "this": "it"}


def attribution_lines(
    reason: Attribution | SimilarityAttribution, width: int = 80, top: int = TOP
) -> list[str]:
    """The explanation in lines of at most so many columns; of many words the strongest."""
    match reason:
        case LabelAttribution():
            parts = [*_label(reason, width, top), *_trust(reason.faithfulness, width)]
        case TokenAttribution():
            parts = [*_token(reason, width, top), *_trust(reason.faithfulness, width)]
        case TranslationAttribution():
            parts = [*_translation(reason, width), *_trust(reason.faithfulness, width)]
        case VectorAttribution():
            parts = [*_vector(reason, width, top), *_trust(_only(reason.faithfulness), width)]
        case SimilarityAttribution():
            parts = [*_similar(reason, width, top), *_trust(_only(reason.faithfulness), width)]
    return [*parts, *_wrapped((f"note: {remark}" for remark in reason.remarks), width)]


def _label(reason: LabelAttribution, width: int, top: int) -> list[str]:
    chances = ", ".join(f"{label} {share(p)}" for label, p in reason.probabilities.items())
    head = [f"why “{reason.label}”?  {chances}", f"to hide a word: {reason.occlusion_method}"]
    rows = [
        (
            word.word,
            word.occlusion or 0.0,
            [format_signed(word.occlusion), format_signed(word.gradients), share(word.attention)],
        )
        for word in reason.words
    ]
    table = _strongest(rows, ("without it", "gradients", "looked at"), width, top)
    whole = reason.completeness
    sums = (
        f"gradients: from a baseline where {reason.baseline}; they sum to {number(whole.sum)} of "
        f"{number(whole.difference)}, an error of {whole.error:.1%} in {whole.steps} steps"
    )
    marks = ", ".join(
        f"{visible_word(m.word.text)} {share(m.attention)}" for m in reason.special_tokens
    )
    apart = [f"looks at marks: {marks}"] if marks else []
    return [*_wrapped(head, width), "", *table, "", *_wrapped([sums, *apart], width)]


def _token(reason: TokenAttribution, width: int, top: int) -> list[str]:
    rows = [
        (
            word.word,
            word.occlusion or 0.0,
            [format_signed(word.occlusion), format_signed(word.gradient)],
        )
        for word in reason.words
    ]
    found = [*_wrapped(title(reason), width), ""]
    found += [*table_lines(surprise_table(reason), width), ""]
    found += [*table_lines(layer_table(reason), width), ""]
    if rows:
        found += [*_strongest(rows, ("without it", "slope × input"), width, top), ""]
    return found


def _translation(reason: TranslationAttribution, width: int) -> list[str]:
    head = _wrapped([f"{reason.source} → {reason.target}"], width)
    table = table_lines(translation_table(reason), width)
    return [*head, "", *table, "", *_wrapped(lost_and_added(reason), width), ""]


def _vector(reason: VectorAttribution, width: int, top: int) -> list[str]:
    rows = [
        (word.word, word.cosine_distance, [f"{word.cosine_distance:.4f}"]) for word in reason.words
    ]
    head = _wrapped([f"to hide a word: {reason.occlusion_method}"], width)
    return [*head, "", *_strongest(rows, ("1 − cosine without it",), width, top), ""]


def _similar(reason: SimilarityAttribution, width: int, top: int) -> list[str]:
    shown = reason.pairs[:top]
    pairs = tuple(f"{visible_word(pair.a)} · {visible_word(pair.b)}" for pair in shown)
    cells = [[format_signed(pair.contribution, 4)] for pair in shown]
    table = table_lines(TextTable("", pairs, ("adds",), cells), width) if shown else []
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
    names = tuple(visible_word(rows[i][0].text) for i in order)
    table = table_lines(TextTable("", names, columns, [rows[i][2] for i in order]), width)
    rest = len(rows) - len(order)
    return [*table, f"and {rest} other words"] if rest else table


def _trust(tests: dict[str, Faithfulness], width: int) -> list[str]:
    said = (f"trust {WAYS.get(way, way)}: {test.trust.verdict}" for way, test in tests.items())
    return _wrapped(said, width)


def _only(test: Faithfulness | None) -> dict[str, Faithfulness]:
    return {} if test is None else {"this": test}


def _wrapped(said: Iterable[str], width: int) -> list[str]:
    return [line for one in said for line in wrap(one, width) or [""]]
