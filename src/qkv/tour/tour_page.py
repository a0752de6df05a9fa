"""The page of a tour: everything the terminal printed, with pictures, in one HTML file."""

from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path

import qkv
from qkv.checks import CheckReport
from qkv.engine.cluster import map_positions, sample_indices, scatter_svg
from qkv.interpret import POEM, walk
from qkv.interpret.attribution import LabelAttribution, LabelWord, format_signed
from qkv.interpret.render import StepSection, WalkView, plain_text, sections
from qkv.report import (
    CURVES_SVG,
    describe_curves,
    document,
    escape,
    inline_picture,
    paragraph,
    read_curves,
    section,
    table,
)
from qkv.tour.heatmaps import alignment, heat_maps
from qkv.tour.results import (
    PROMPT,
    ExplainedReview,
    ReviewClusters,
    TourResults,
    TrainedModel,
)
from qkv.tour.terminal import Commands, commands_for_models, commands_for_own_files

EXAMPLE_STEPS = ("scores", "scaled", "weights", "output")

BAR_HEIGHT = 2.4  # rem, of the highest bar

ATTENTION_WEIGHTS = ["*.weights"]  # all that is captured of a trace

SAMPLE_WORDS = 14  # of the sample, whose attention is drawn

SELECTION_BIAS = (
    "The same validation part chose which weights were kept, which flatters it a little."
)


def page(results: TourResults) -> str:
    """The whole page as HTML."""
    style = (files("qkv.tour") / "tour.css").read_text("utf-8")
    body = (
        section("1. Attention by hand", *_worked_example()),
        section(f"2. {results.sentiment.spec.title}", *_sentiment(results)),
        section(f"3. {results.language.spec.title}", *_language(results)),
        section(f"4. {results.translation.spec.title}", *_translation(results)),
        section("5. Similar texts", *_clusters(results.clusters)),
        section("6. Proofs on all three", *_checks(results)),
        section("Next", *_next_commands(results.sentiment.path.parent)),
        section("Where these numbers come from", _provenance(results)),
    )
    html = document("tour", "Three Transformers, trained and opened up", _verdict(results), body)
    return html.replace("</style>", f"{style}</style>", 1)


def _verdict(results: TourResults) -> str:
    better = sum(trained.beats_baseline for trained in results.models)
    sound = sum(report.ok for report in results.reports.values())
    return (
        f"An encoder, a decoder and an encoder–decoder were trained on this machine; {better} of 3 "
        f"beat their baselines, and the checks of {sound} of 3 all hold."
    )


def _worked_example() -> list[str]:
    """A sentence on what attention does, and the steps that do it."""
    example = walk(POEM)
    lead = paragraph(
        f"{example.title}: every query is compared with every key, the scores are divided by √d_k "
        "and become weights that sum to 1, and the output is the weighted mean of the values."
    )
    return [lead, *map(_example_step, sections(WalkView(example, steps=EXAMPLE_STEPS)))]


def _example_step(part: StepSection) -> str:
    title = f"{part.number}. {part.step.title}: {part.step.equation}"
    rows = [[name, *cells] for name, cells in zip(part.table.rows, part.table.cells, strict=True)]
    html = table(title, (part.table.corner, *part.table.columns), rows)
    for note in (plain_text(part.step.sentence).replace("*", ""), *part.footnotes):
        html += f'<p class="note">{escape(note)}</p>'
    return html


def _sentiment(results: TourResults) -> list[str]:
    trained = results.sentiment
    last = results.reviews[-1]
    trace = trained.model.trace(last.review.text, keep=ATTENTION_WEIGHTS)
    return [
        *_training(trained),
        paragraph(
            "Validation reviews, and the words behind their labels. The bar over a word, and the "
            "number below it, is how far the log-odds of the label fall without the word; a "
            "hatched bar is a word that speaks against it. Below each: what deleting the words "
            "with the highest bars does, against deleting random ones. The ranking comes from "
            "deleting words itself, so for a single word that test only repeats it."
        ),
        *map(_review, results.reviews),
        "<h3>Where its heads look</h3>",
        paragraph(f"“{last.review.text}”"),
        heat_maps(trace, "sentiment"),
    ]


def _review(explained: ExplainedReview) -> str:
    """The review word by word, and its label."""
    attribution = explained.attribution
    largest = max((abs(_effect(word)) for word in attribution.words), default=0.0) or 1.0
    words = "\n".join(_word(word, largest) for word in attribution.words)
    correction = ""
    if not explained.correct:
        correction = f", but it is {explained.review.label}"
    verdict = f"{attribution.label} ({attribution.probability:.3f}){correction}"
    return (
        f'<h3>{escape(verdict)}</h3>\n<p class="words">\n{words}\n</p>\n'
        f"{_faithfulness(attribution)}"
    )


def _word(word: LabelWord, largest: float) -> str:
    """A bar as high as the effect is large, hatched where the word speaks against the label."""
    effect = _effect(word)
    kind = "against"
    if effect >= 0:
        kind = "for"
    height = BAR_HEIGHT * abs(effect) / largest
    return (
        f'<span class="word {kind}"><span class="bar" style="height:{height:.2f}rem">'
        f"</span><b>{escape(word.word.text)}</b><small>{format_signed(effect, 1)}</small></span>"
    )


def _effect(word: LabelWord) -> float:
    return word.occlusion or 0.0


def _faithfulness(attribution: LabelAttribution) -> str:
    test = attribution.faithfulness.get("occlusion")
    sentence = ""
    if test is not None:
        sentence = f"How far to trust this: {test.trust.verdict}."
    return f'<p class="note">{escape(sentence)}</p>'


def _language(results: TourResults) -> list[str]:
    trained = results.language
    beginning = " ".join(results.sample.split()[:SAMPLE_WORDS])
    trace = trained.model.trace(beginning, keep=ATTENTION_WEIGHTS)
    return [
        *_training(trained),
        paragraph(f"Its continuation of “{PROMPT}”, sampled with a fixed seed:"),
        f"<blockquote>{escape(results.sample.rstrip())}</blockquote>",
        "<h3>Where its heads look</h3>",
        paragraph(f"“{beginning}”. A decoder may not look ahead: that half is hatched."),
        heat_maps(trace, "language"),
    ]


def _translation(results: TourResults) -> list[str]:
    trained = results.translation
    first = results.translations[0]
    trace = trained.model.trace(first.pair.source, target=first.pair.target, keep=ATTENTION_WEIGHTS)
    return [
        *_training(trained),
        paragraph(
            "Validation sentences. Each cell is the fraction of its attention that a German word "
            "gives an English one; the framed number with a star is the word it depends on most, "
            "measured by hiding one after the other."
        ),
        *map(alignment, results.translations),
        "<h3>Where its heads look</h3>",
        paragraph(f"“{first.pair.source}” → “{first.pair.target}”"),
        heat_maps(trace, "translation"),
    ]


def _training(trained: TrainedModel) -> list[str]:
    """How it was trained, its score as a bar next to the baseline's, and its curves."""
    match trained.spec.metric:
        case "accuracy":
            full_scale = 1.0
        case "bleu":
            full_scale = 100.0
        case _:
            full_scale = max(trained.score, trained.baseline)
    bars = ""
    for name, css_class, score in (
        ("this model", "", trained.score),
        (escape(trained.spec.baseline), "baseline", trained.baseline),
    ):
        bars += (
            f'<span class="who">{name}</span><span class="track"><span class="fill {css_class}" '
            f'style="width:{score / full_scale:.1%}"></span></span>'
            f"<span>{trained.format_score(score)}</span>"
        )
    return [
        paragraph(trained.training_sentence),
        paragraph(f"{trained.score_sentence} {SELECTION_BIAS}"),
        f'<div class="score">{bars}</div>',
        _curves(trained),
    ]


def _curves(trained: TrainedModel) -> str:
    """The learning curves that training drew, with their numbers in words below."""
    spec = trained.spec
    svg = (trained.path / CURVES_SVG).read_text("utf-8")
    curves = read_curves(trained.metrics, spec.selection_metric, spec.higher_is_better)
    return inline_picture(svg, describe_curves(curves, spec.selection_metric), spec.name)


def _clusters(clusters: ReviewClusters) -> list[str]:
    """A map of the texts, and a table of the clusters."""
    clustering = clusters.clustering
    indices = sample_indices(clustering, 0)
    svg = scatter_svg(clustering, indices, map_positions(clusters.vectors[indices], 0))
    caption = (
        f"{len(clustering.texts):,} validation reviews, similar ones near each other. The numbers "
        "are those of the groups below. Hover over a symbol to read its text."
    )
    rows = []
    for each in clustering.clusters:
        label, fraction = clusters.majority_label(each.id)
        texts = "\n".join(clustering.texts[index] for index in clusters.members(each.id))
        rows.append((f"{each.id}", each.name, texts, f"{fraction:.0%} {label}", f"{each.size:,}"))
    columns = ("group", "named by its words", "near its centre", "labelled", "texts")
    return [
        paragraph(
            "Groups of the vectors that the encoder reads its label off. It was trained to "
            "separate labels, so its groups separate them too; the clustering itself sees no label."
        ),
        f'<figure>\n{svg}\n<figcaption id="map">{escape(caption)}</figcaption>\n</figure>',
        table("Groups, the largest first", columns, rows, texts=4),
    ]


def _checks(results: TourResults) -> list[str]:
    first = next(iter(results.reports.values()))
    rows = []
    for index, check in enumerate(first.checks):
        deviations = [_deviation(report, index) for report in results.reports.values()]
        rows.append((check.name, *deviations))
    return [
        paragraph("The largest deviation measured, and in brackets the tolerance."),
        table("What must hold for every model", ("check", *results.reports), rows),
    ]


def _deviation(report: CheckReport, index: int) -> str:
    result = report.checks[index]
    if result.worst is None:
        return "does not apply"
    mark = "✗ FAILS"
    if result.ok:
        mark = "✓"
    return f"{mark} {result.worst:.1g} ({result.tolerance:g})"


def _next_commands(folder: Path) -> list[str]:
    return [
        paragraph("The three models stay where they are, ready for every other command."),
        _command_list(commands_for_models(folder)),
        "<h3>With a file of your own</h3>",
        _command_list(commands_for_own_files()),
    ]


def _command_list(commands: Commands) -> str:
    items = "\n".join(
        f'<li><code tabindex="0">{escape(command)}</code><span>{escape(purpose)}</span></li>'
        for command, purpose in commands
    )
    return f'<ul class="commands">\n{items}\n</ul>'


def _provenance(results: TourResults) -> str:
    rows: list[Sequence[str]] = []
    for trained in results.models:
        weights_hash = trained.model.about["sha256"][:16]
        data_hash = trained.recipe.data.sha256[:16]
        rows.append((trained.spec.name, weights_hash, data_hash, f"{trained.recipe.seed}"))
    about = results.sentiment.model.about
    versions = f"qkv {qkv.__version__}, torch {about['torch']}, Python {about['python']}."
    columns = ("model", "hash of its weights", "hash of its data", "seed")
    return table("Models", columns, rows, texts=3) + paragraph(versions)
