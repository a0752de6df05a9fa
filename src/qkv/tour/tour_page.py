"""The page of a tour: what the terminal was told, with pictures."""

from importlib.resources import files
from pathlib import Path

import qkv
from qkv.checks import CheckReport
from qkv.engine.cluster.cluster_page import picture, places, sampled
from qkv.interpret.attribution.attribution_text import format_signed
from qkv.interpret.attribution.label import LabelAttribution, LabelWord
from qkv.interpret.examples import POEM
from qkv.interpret.render.sections import Section, WalkView, sections
from qkv.interpret.render.terminal_text import plain_text
from qkv.interpret.walk import walk
from qkv.report.html import document, escaped, paragraph, section, table
from qkv.report.page import CURVES_SVG, inline_picture
from qkv.report.summary import course, read_progress
from qkv.tour.heatmaps import alignment, heat_maps
from qkv.tour.results import PROMPT, Groups, Judgement, Outcome, Told
from qkv.tour.terminal import Lines, for_ones_own, for_these

# FOLDED tour/page/example: The worked example as tables.
# FOLDED tour/page/groups: Groups of similar texts: a map and a table.
# FOLDED tour/page/curve: The learning curves that training has drawn, put into the page in its
#   colours.
# FOLDED tour/page/words: Words with the part each has in a label: a bar, a number and a sign,
#   never colour alone.
# FOLDED tour/page/models: The three models of the tour: how good they are, what they answer,
#   and where their heads look.

STEPS = ("scores", "scaled", "weights", "output")


def example() -> list[str]:
    """A sentence on what attention does, and the steps that do it."""
    walked = walk(POEM)
    lead = paragraph(
        f"{walked.title}: every query is compared with every key, the scores are divided by √d_k "
        "and become weights that sum to 1, and the output is the weighted mean of the values."
    )
    return [lead, *map(_step, sections(WalkView(walked, steps=STEPS)))]


def _step(shown: Section) -> str:
    title = f"{shown.number}. {shown.step.title}: {shown.step.equation}"
    rows = [[name, *cells] for name, cells in zip(shown.table.rows, shown.table.cells, strict=True)]
    whole = table(title, (shown.table.corner, *shown.table.columns), rows)
    notes = [plain_text(shown.step.sentence).replace("*", ""), *shown.footnotes]
    return whole + "".join(f'<p class="note">{escaped(note)}</p>' for note in notes)


def groups(found: Groups) -> list[str]:
    """Where each text stands among the others, and what each group is."""
    clustering = found.clustering
    shown = sampled(clustering, 0)
    map_ = picture(clustering, shown, places(found.vectors[shown], 0))
    caption = (
        f"{len(clustering.texts):,} held-out reviews, alike ones near each other. Numbers are "
        "those of the groups below. Point at a sign to read its text."
    )
    rows = [
        (
            f"{each.id}",
            each.name,
            "\n".join(clustering.texts[i] for i in found.members(each.id)),
            f"{found.share(each.id)[1]:.0%} {found.share(each.id)[0]}",
            f"{each.size:,}",
        )
        for each in clustering.clusters
    ]
    columns = ("group", "named by its words", "near its centre", "labelled", "texts")
    return [
        paragraph(
            "Groups of the vectors that the encoder reads its label off. It learnt to part labels, "
            "so its groups part them too; the grouping itself sees no label."
        ),
        f'<figure>\n{map_}\n<figcaption id="map">{escaped(caption)}</figcaption>\n</figure>',
        table("Groups, the largest first", columns, rows, texts=4),
    ]


def curve(outcome: Outcome) -> str:
    """The picture, with its numbers in words below it."""
    svg = (outcome.place / CURVES_SVG).read_text("utf-8")
    return inline_picture(svg, _words(outcome), outcome.part.name)


def _words(outcome: Outcome) -> str:
    part = outcome.part
    progress = read_progress(outcome.lines, part.watched, part.higher_is_better)
    return course(progress, part.watched)


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
        f"</span><b>{escaped(word.word.text)}</b><small>{format_signed(part, 1)}</small></span>"
    )


def _trust(reason: LabelAttribution) -> str:
    test = reason.faithfulness.get("occlusion")
    said = "" if test is None else f"How far to trust this: {test.trust.verdict}."
    return f'<p class="note">{escaped(said)}</p>'


def _part(word: LabelWord) -> float:
    return word.occlusion or 0.0


WEIGHTS = ["*.weights"]

CHOSEN = "The same held-out part chose which weights were kept, which flatters it a little."

WORDS = 14  # of what the language model wrote, that its heads are shown on


def sentiment(told: Told) -> list[str]:
    """Reviews word by word."""
    outcome, last = told.sentiment, told.judgements[-1]
    shown = outcome.box.trace(last.review.text, keep=WEIGHTS)
    return [
        *_trained(outcome),
        paragraph(
            "Held-out reviews, and the words that made their labels. The bar over a word, and the "
            "number below it, is how far the log-odds of the label fall without the word; a "
            "hatched bar is a word that speaks against it. Below each: what deleting the words "
            "with the highest bars does, against deleting random ones. The ranking comes from "
            "deleting words itself, so for a single word that test only repeats it."
        ),
        *map(judgement, told.judgements),
        "<h3>Where its heads look</h3>",
        paragraph(f"“{last.review.text}”"),
        heat_maps(shown, "sentiment"),
    ]


def language(told: Told) -> list[str]:
    """What it wrote."""
    outcome = told.language
    first = " ".join(told.paragraph.split()[:WORDS])
    shown = outcome.box.trace(first, keep=WEIGHTS)
    return [
        *_trained(outcome),
        paragraph(f"How it goes on with “{PROMPT}”, drawn with a fixed seed:"),
        f"<blockquote>{escaped(told.paragraph.rstrip())}</blockquote>",
        "<h3>Where its heads look</h3>",
        paragraph(f"“{first}”. A decoder may not look ahead: that half is hatched."),
        heat_maps(shown, "language"),
    ]


def translation(told: Told) -> list[str]:
    """Sentences with their alignment."""
    outcome, first = told.translation, told.renderings[0]
    shown = outcome.box.trace(first.pair.source, target=first.pair.target, keep=WEIGHTS)
    return [
        *_trained(outcome),
        paragraph(
            "Held-out sentences. Each cell is the share of its attention that a German word gives "
            "an English one; the framed number with a star is the word it depends on most, found "
            "by hiding one after the other."
        ),
        *map(alignment, told.renderings),
        "<h3>Where its heads look</h3>",
        paragraph(f"“{first.pair.source}” → “{first.pair.target}”"),
        heat_maps(shown, "translation"),
    ]


def _trained(outcome: Outcome) -> list[str]:
    score, other = outcome.score, outcome.baseline
    most = (
        1.0
        if outcome.part.metric == "accuracy"
        else max(100.0 * (outcome.part.metric == "bleu"), score, other)
    )
    rows = "".join(
        f'<span class="who">{who}</span><span class="track"><span class="fill {kind}" '
        f'style="width:{value / most:.1%}"></span></span><span>{outcome.figure(value)}</span>'
        for who, kind, value in (
            ("this model", "", score),
            (escaped(outcome.part.baseline), "baseline", other),
        )
    )
    return [
        paragraph(outcome.trained),
        paragraph(f"{outcome.judged} {CHOSEN}"),
        f'<div class="score">{rows}</div>',
        curve(outcome),
    ]


def page(told: Told) -> str:
    """One file of HTML."""
    style = (files("qkv.tour") / "tour.css").read_text("utf-8")
    body = (
        section("1. Attention by hand", *example()),
        section(f"2. {told.sentiment.part.title}", *sentiment(told)),
        section(f"3. {told.language.part.title}", *language(told)),
        section(f"4. {told.translation.part.title}", *translation(told)),
        section("5. Similar texts", *groups(told.groups)),
        section("6. Proofs on all three", *_proofs(told)),
        section("Next", *_next(told.sentiment.place.parent)),
        section("Where these numbers come from", _provenance(told)),
    )
    whole = document("tour", "Three Transformers, trained and opened up", _verdict(told), body)
    return whole.replace("</style>", f"{style}</style>", 1)


def _verdict(told: Told) -> str:
    better = sum(each.beats for each in told.outcomes)
    proved = sum(report.ok for report in told.reports.values())
    return (
        f"An encoder, a decoder and an encoder–decoder learnt on this machine; {better} of 3 beat "
        f"their baselines, and the checks of {proved} of 3 all hold."
    )


def _proofs(told: Told) -> list[str]:
    names = [result.name for result in next(iter(told.reports.values())).checks]
    rows = [
        (name, *(_result(report, at) for report in told.reports.values()))
        for at, name in enumerate(names)
    ]
    lead = "The largest deviation that was found, and in brackets how much is allowed."
    return [
        paragraph(lead),
        table("What must hold for every model", ("check", *told.reports), rows),
    ]


def _result(report: CheckReport, at: int) -> str:
    result = report.checks[at]
    if result.worst is None:
        return "does not apply"
    return f"{'✓' if result.ok else '✗ FAILS'} {result.worst:.1g} ({result.tolerance:g})"


def _next(folder: Path) -> list[str]:
    return [
        paragraph("The three models stay where they are, ready for every other command."),
        _commands(for_these(folder)),
        "<h3>With a file of your own</h3>",
        _commands(for_ones_own()),
    ]


def _commands(lines: Lines) -> str:
    items = "\n".join(
        f'<li><code tabindex="0">{escaped(command)}</code><span>{escaped(purpose)}</span></li>'
        for command, purpose in lines
    )
    return f'<ul class="commands">\n{items}\n</ul>'


def _provenance(told: Told) -> str:
    rows = [
        (each.part.name, each.box.about["sha256"][:16], each.recipe.data.sha256[:16],
         f"{each.recipe.seed}")
        for each in told.outcomes
    ]  # fmt: skip
    about = told.sentiment.box.about
    versions = f"qkv {qkv.__version__}, torch {about['torch']}, Python {about['python']}."
    columns = ("model", "hash of its weights", "hash of its data", "seed")
    return table("Models", columns, rows, texts=3) + paragraph(versions)
