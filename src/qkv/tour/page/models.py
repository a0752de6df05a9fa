"""The three models of the tour: how good they are, what they answer, and where their heads look."""

from qkv.report.markup import escaped, paragraph
from qkv.tour.looks import PROMPT
from qkv.tour.outcome import Outcome
from qkv.tour.page.alignment import alignment
from qkv.tour.page.curve import curve
from qkv.tour.page.heat import heat_maps
from qkv.tour.page.words import judgement
from qkv.tour.told import Told

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
