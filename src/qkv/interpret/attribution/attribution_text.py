"""An attribution for the terminal: a table of its words, and sentences on how far to trust it."""

from collections.abc import Iterable, Sequence
from math import exp
from textwrap import wrap

from qkv.files import one_line
from qkv.interpret.attribution.answer import AnswerAttribution
from qkv.interpret.attribution.attribute import Attribution, SimilarityAttribution
from qkv.interpret.attribution.faithfulness import Faithfulness
from qkv.interpret.attribution.label import LabelAttribution
from qkv.interpret.attribution.readouts import TokenProb
from qkv.interpret.attribution.token import TokenAttribution
from qkv.interpret.attribution.translation import TargetWord, TranslationAttribution
from qkv.interpret.attribution.vector import VectorAttribution
from qkv.interpret.attribution.words import WordSpan
from qkv.interpret.render.sections import TextTable
from qkv.interpret.render.terminal_text import table_lines

DEFAULT_TOP = 15  # words
MAX_ALTERNATIVES = 3
TRANSLATION_COLUMNS = ("likely", "attends to", "depends on", "")
METHOD_NAMES = {"attention": "attention (where it looked)", "this": "it"}

WordRow = tuple[WordSpan, float, list[str]]  # a word, its strength, and the cells of its row


def attribution_lines(
    attribution: Attribution | SimilarityAttribution | AnswerAttribution,
    width: int = 80,
    top: int = DEFAULT_TOP,
) -> list[str]:
    """The attribution in lines of at most `width` columns, with the `top` strongest words."""
    match attribution:
        case LabelAttribution():
            lines = _label_lines(attribution, width, top)
        case TokenAttribution():
            lines = _token_lines(attribution, width, top)
        case TranslationAttribution():
            lines = _translation_lines(attribution, width)
        case VectorAttribution():
            lines = _vector_lines(attribution, width, top)
        case SimilarityAttribution():
            lines = _similarity_lines(attribution, width, top)
        case AnswerAttribution():
            lines = _answer_lines(attribution, width, top)
    tests = attribution.faithfulness
    if isinstance(tests, Faithfulness):
        tests = {"this": tests}
    lines += _trust_lines(tests or {}, width)
    return lines + _wrap((f"note: {remark}" for remark in attribution.remarks), width)


def _label_lines(attribution: LabelAttribution, width: int, top: int) -> list[str]:
    probs = ", ".join(
        f"{label} {format_probability(p)}" for label, p in attribution.probabilities.items()
    )
    head = [
        f"why “{attribution.label}”?  {probs}",
        f"occlusion: {attribution.occlusion_method}",
    ]
    rows: list[WordRow] = []
    for word in attribution.words:
        cells = [
            format_signed(word.occlusion),
            format_signed(word.gradients),
            format_probability(word.attention),
        ]
        rows.append((word.word, word.occlusion or 0.0, cells))
    table = _strongest_words(rows, ("without it", "gradients", "attention"), width, top)
    completeness = attribution.completeness
    notes = [
        f"gradients: from a baseline where {attribution.baseline}; they sum to "
        f"{_decimal(completeness.sum)} of {_decimal(completeness.difference)}, an error of "
        f"{completeness.error:.1%} in {completeness.steps} steps"
    ]
    special_tokens = ", ".join(
        f"{visible_word(token.word.text)} {format_probability(token.attention)}"
        for token in attribution.special_tokens
    )
    if special_tokens:
        notes.append(f"attention to special tokens: {special_tokens}")
    return [*_wrap(head, width), "", *table, "", *_wrap(notes, width)]


def _token_lines(attribution: TokenAttribution, width: int, top: int) -> list[str]:
    lines = [*_wrap(_contrast_header(attribution), width), ""]
    lines += [*table_lines(prompt_table(attribution), width), ""]
    lines += [*table_lines(logit_lens_table(attribution), width), ""]
    rows: list[WordRow] = []
    for word in attribution.words:
        cells = [format_signed(word.occlusion), format_signed(word.gradient)]
        rows.append((word.word, word.occlusion or 0.0, cells))
    if rows:
        lines += [*_strongest_words(rows, ("without it", "gradient × input"), width, top), ""]
    return lines


def _contrast_header(attribution: TokenAttribution) -> list[str]:
    """Which token against which, and the probability of both."""
    token, against = (
        f"{_quote(one.token)} ({format_probability(one.probability)})"
        for one in (attribution.token, attribution.against)
    )
    return [
        f"why {token} rather than {against}?  log-odds {_decimal(attribution.difference)}",
        f"next: {_token_list(attribution.next_tokens)}",
        f"occlusion: {attribution.occlusion_method}",
    ]


def prompt_table(attribution: TokenAttribution) -> TextTable:
    """Each token of the prompt, its probability, and the alternatives."""
    rows = []
    cells = []
    for token in attribution.prompt_tokens:
        rows.append(_quote(token.token))
        if token.probability is None or token.surprisal is None:
            cells.append(["", "", "nothing stands before it"])
        else:
            probability = format_probability(token.probability)
            alternatives = _token_list(token.alternatives[:MAX_ALTERNATIVES])
            cells.append([probability, f"{token.surprisal:.1f}", alternatives])
    return TextTable("token", tuple(rows), ("likely", "bits", "expected"), cells)


def logit_lens_table(attribution: TokenAttribution) -> TextTable:
    """The most probable token after each layer, and the probability of the explained one."""
    names = ["embedding", *(f"layer {readout.layer - 1}" for readout in attribution.layers[1:])]
    cells = []
    for readout in attribution.layers:
        best = format_probability(readout.best_probability)
        probability = format_probability(readout.probability)
        cells.append([_quote(readout.best), best, probability, f"{readout.rank}"])
    columns = ("predicts", "likely", f"{_quote(attribution.token.token)} likely", "rank")
    return TextTable("after", tuple(names), columns, cells)


def _translation_lines(attribution: TranslationAttribution, width: int) -> list[str]:
    head = _wrap([f"{attribution.source} → {attribution.target}"], width)
    table = table_lines(translation_table(attribution), width)
    return [*head, "", *table, "", *_wrap(_translation_notes(attribution), width), ""]


def translation_table(attribution: TranslationAttribution) -> TextTable:
    """Each target word, its probability, and the source words it depends on."""
    names = [visible_word(word.word.text) for word in attribution.sources]
    targets = tuple(visible_word(word.word.text) for word in attribution.targets)
    cells = [_translation_cells(word, names) for word in attribution.targets]
    return TextTable("", targets, TRANSLATION_COLUMNS, cells)


def _translation_cells(word: TargetWord, names: list[str]) -> list[str]:
    probability = format_probability(word.probability)
    attends = f"{names[word.most_attended]} {format_probability(max(word.attention))}"
    if word.depends_on is None:
        return [probability, attends, "", "hallucinated?"]
    depends = f"{names[word.depends_on]} {format_signed(max(word.ablation))}"
    return [probability, attends, depends, "" if word.agrees else "differ"]


def _translation_notes(attribution: TranslationAttribution) -> list[str]:
    """How far attention and occlusion agree, and which words may be omitted or hallucinated."""
    notes = []
    if attribution.agreement is not None:
        fraction = f"{attribution.agreement:.0%} of the words"
        notes.append(f"attention (layer {attribution.layer}) and occlusion agree on {fraction}")
    for source in attribution.omitted:
        effect = _decimal(source.max_effect)
        notes.append(
            f"omitted? “{source.word.text}”: hiding it moves no word by more than {effect}"
        )
    for target in attribution.hallucinated:
        effect = _decimal(max(map(abs, target.ablation)))
        notes.append(
            f"hallucinated? “{target.word.text}”: no source word moves it by more than {effect}, "
            f"the whole source by {_decimal(target.source_effect)}"
        )
    return notes


def _vector_lines(attribution: VectorAttribution, width: int, top: int) -> list[str]:
    rows: list[WordRow] = []
    for word in attribution.words:
        rows.append((word.word, word.cosine_distance, [f"{word.cosine_distance:.4f}"]))
    head = _wrap([f"occlusion: {attribution.occlusion_method}"], width)
    return [*head, "", *_strongest_words(rows, ("1 − cosine without it",), width, top), ""]


def _similarity_lines(attribution: SimilarityAttribution, width: int, top: int) -> list[str]:
    lines = [f"cosine {attribution.cosine:.4f}"]
    strongest = attribution.pairs[:top]
    if strongest:
        names = tuple(f"{visible_word(pair.a)} · {visible_word(pair.b)}" for pair in strongest)
        cells = [[format_signed(pair.contribution, 4)] for pair in strongest]
        lines += table_lines(TextTable("", names, ("adds",), cells), width)
    rest = attribution.pairs[top:]
    if rest:
        total = sum(pair.contribution for pair in rest)
        lines.append(f"{len(rest)} other pairs add {_decimal(total)}")
    return [*lines, ""]


def _answer_lines(attribution: AnswerAttribution, width: int, top: int) -> list[str]:
    """For the first `top` words of the answer, the prompt words whose removal lowers them most."""
    names = [visible_word(word.text) for word in attribution.words]
    rows = []
    cells = []
    for word in attribution.answer_words[:top]:
        rows.append(visible_word(word.word.text))
        strongest = word.depends_on[:MAX_ALTERNATIVES]
        reasons = [f"{names[i]} {format_signed(-word.drops[i])}" for i in strongest]
        cells.append([format_probability(exp(word.log_probability)), ", ".join(reasons)])
    lines = table_lines(TextTable("", tuple(rows), ("likely", "less without"), cells), width)
    rest = len(attribution.answer_words) - len(rows)
    if rest > 0:
        lines.append(f"and {rest} other words")
    return [*lines, ""]


def _strongest_words(
    rows: Sequence[WordRow], columns: tuple[str, ...], width: int, top: int
) -> list[str]:
    """A table of the strongest words, and how many others there are."""
    order = sorted(range(len(rows)), key=lambda i: (-abs(rows[i][1]), i))[:top]
    if not order:
        return []
    names = tuple(visible_word(rows[i][0].text) for i in order)
    lines = table_lines(TextTable("", names, columns, [rows[i][2] for i in order]), width)
    rest = len(rows) - len(order)
    if rest:
        lines = [*lines, f"and {rest} other words"]
    return lines


def _trust_lines(tests: dict[str, Faithfulness], width: int) -> list[str]:
    sentences = []
    for method, test in tests.items():
        name = METHOD_NAMES.get(method, method)
        sentences.append(f"trust {name}: {test.trust.verdict}")
    return _wrap(sentences, width)


def _wrap(sentences: Iterable[str], width: int) -> list[str]:
    return [line for sentence in sentences for line in wrap(sentence, width) or [""]]


def visible_word(word: str) -> str:
    """The word on one line; blanks in quotes, so that they can be seen."""
    return one_line(word) if word.strip() else repr(word)


def format_probability(value: float) -> str:
    """Three decimals, or <0.001."""
    return f"{value:.3f}" if value >= 0.001 or value == 0 else "<0.001"


def format_signed(value: float | None, decimals: int = 2) -> str:
    """With its sign, and a true minus; empty for None."""
    if value is None:
        return ""
    return f"{value:+.{decimals}f}".replace("-", "−")


def _decimal(value: float) -> str:
    return f"{value:.3f}".replace("-", "−")


def _quote(token: str) -> str:
    return f"“{token}”"


def _token_list(tokens: tuple[TokenProb, ...]) -> str:
    return ", ".join(f"{_quote(one.token)} {format_probability(one.probability)}" for one in tokens)
