"""The tour for a terminal of 80 columns: plain lines, which read as well in a file."""

import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from textwrap import wrap

from qkv.checks import CheckReport
from qkv.files import one_line
from qkv.interpret import POEM, walk
from qkv.interpret.attribution import LabelWord
from qkv.interpret.render import WalkView, render_text
from qkv.tour.results import (
    ExplainedReview,
    ExplainedTranslation,
    ReviewClusters,
    TrainedModel,
)

WIDTH = 80

EXAMPLE_STEPS = ("weights", "output")  # of the worked example

TOP_WORDS = 3  # named for a label

UNFAITHFUL = "; where it does not (?), do not rely on them."

REVIEW = "The hotel was never dull."

SENTENCE = "She arrives on May 2."

Commands = tuple[tuple[str, str], ...]  # a command and what it is for


def heading(number: int, title: str) -> Iterator[str]:
    line = f"{number}. {title}"
    yield ""
    yield line
    yield "─" * len(line)


def wrapped(line: str, indent: str = "") -> Iterator[str]:
    yield from wrap(line, WIDTH, initial_indent=indent, subsequent_indent=indent)


def worked_example() -> Iterator[str]:
    """The weights and the output of the worked example; the other steps are a command away."""
    yield render_text(WalkView(walk(POEM), steps=EXAMPLE_STEPS), WIDTH)
    yield ""
    yield from wrapped("Every step with its arithmetic: qkv explain")


def training_lines(trained: TrainedModel) -> Iterator[str]:
    yield from wrapped(trained.training_sentence)
    yield from wrapped(trained.score_sentence)


def review_lines(reviews: Sequence[ExplainedReview]) -> Iterator[str]:
    """Each review with its label and the words behind it; then how far to trust them."""
    for explained in reviews:
        attribution = explained.attribution
        yield ""
        yield from wrapped(explained.review.text)
        correction = ""
        if not explained.correct:
            correction = f", but it is {explained.review.label}"
        yield f"  → {attribution.label} ({attribution.probability:.3f}){correction}"
        words = ", ".join(_word_with_effect(word) for word in top_words(explained))
        if words:
            yield from wrapped(f"because of {words}{_doubt(explained.faithful)}", "    ")
        else:
            yield from wrapped("no single word decides it", "    ")
    yield ""
    yield from wrapped(
        "In brackets: how far the log-odds of the label fall without the word. "
        + faithfulness_sentence([each.faithful for each in reviews], "deleting", "reviews")
    )


def top_words(explained: ExplainedReview) -> list[LabelWord]:
    """The words whose deletion lowers the label's log-odds most, in the order of the text."""
    words = explained.attribution.words
    strongest = sorted(words, key=_effect, reverse=True)[:TOP_WORDS]
    return [word for word in words if word in strongest and _effect(word) > 0]


def faithfulness_sentence(faithful: Sequence[bool], action: str, texts: str) -> str:
    """For how many of the texts the top words beat random ones, and what (?) means."""
    ending = "."
    if not all(faithful):
        ending = UNFAITHFUL
    return (
        f"For {sum(faithful)} of {len(faithful)} {texts}, {action} the words named moves the "
        f"answer clearly more than {action} random ones{ending}"
    )


def sample_lines(sample: str) -> Iterator[str]:
    """What the language model wrote, between bars."""
    yield ""
    for line in sample.rstrip().splitlines():
        for folded in wrap(line, WIDTH - 4, drop_whitespace=False) or [""]:
            yield f"  │ {folded}".rstrip()


def translation_lines(translations: Sequence[ExplainedTranslation]) -> Iterator[str]:
    """Each sentence, its translation, and the source word that each word attended to most."""
    for explained in translations:
        yield ""
        yield from wrapped(explained.pair.source)
        yield from wrapped(f"→ {explained.attribution.target}", "  ")
        if not explained.correct:
            yield from wrapped(f"the reference: {explained.pair.target}", "    ")
        links = " · ".join(alignment_links(explained))
        yield from wrapped(links + _doubt(explained.faithful), "    ")
    yield ""
    yield from wrapped(
        "After ←: the source word that got most of its attention. "
        + faithfulness_sentence([each.faithful for each in translations], "hiding", "sentences")
    )


def alignment_links(explained: ExplainedTranslation) -> list[str]:
    """`target ← source` for every word; punctuation is left out."""
    attribution = explained.attribution
    return [
        f"{word.word.text} ← {attribution.sources[word.most_attended].word.text}"
        for word in attribution.targets
        if any(letter.isalnum() for letter in word.word.text)
    ]


def cluster_lines(clusters: ReviewClusters) -> Iterator[str]:
    """Each cluster by its words, the label most of its texts have, and a few of them."""
    clustering = clusters.clustering
    yield from wrapped(
        f"{len(clustering.texts):,} validation reviews fall into {len(clustering.clusters)} groups "
        "by the vectors of the encoder. It was trained to separate labels, so the groups separate "
        "them too; the clustering itself sees no label."
    )
    for each in clustering.clusters:
        label, fraction = clusters.majority_label(each.id)
        yield ""
        yield from wrapped(f"{each.size:,} texts: {each.name} ({fraction:.0%} are {label})")
        for index in clusters.members(each.id):
            yield f"  {_truncate(clustering.texts[index], WIDTH - 2)}"


def check_line(name: str, report: CheckReport) -> str:
    """One line; it names the first violation and its location, if there is one."""
    applying = [result for result in report.checks if result.applies]
    passed = sum(result.ok for result in applying)
    line = f"{name:<12} {passed} of {len(applying)} checks hold"
    first = report.first_failure
    if first is None:
        return line
    return f"{line}; {first.name} does not, first at {first.location}"


def ending(folder: Path, page: Path) -> Iterator[str]:
    """Where everything is, and what to do with it."""
    yield ""
    yield "Next"
    yield "────"
    yield f"The page with pictures: {page}"
    names = ", ".join(str(folder / name) for name in ("sentiment", "language", "translation"))
    yield from wrapped(f"The three models stay: {names}.")
    yield ""
    yield from _command_lines(commands_for_models(folder))
    yield ""
    yield "With a file of your own:"
    yield from _command_lines(commands_for_own_files())


def commands_for_models(folder: Path) -> Commands:
    """Commands for the three models; every one runs as it stands."""
    sentiment = shlex.quote(str(folder / "sentiment"))
    language = shlex.quote(str(folder / "language"))
    translation = shlex.quote(str(folder / "translation"))
    return (
        (f'qkv classify {sentiment} "{REVIEW}"', "a label"),
        (f'qkv explain "{REVIEW}" --model {sentiment} --why', "and the words behind it"),
        (f'qkv generate {language} "Return the" --max-tokens 60', "more of it"),
        (f'qkv translate {translation} "{SENTENCE}" --alignment', "word by word"),
        (f'qkv explain "{SENTENCE}" --model {translation} -o open.html', "all its numbers"),
        (f"qkv inspect {language}", "what it is made of"),
        (f"qkv check {translation}", "the proofs again"),
    )


def commands_for_own_files() -> Commands:
    return (
        ("qkv train classify reviews.csv -o runs/mine --minutes 5", "columns text and label"),
        ("qkv train language book.txt -o runs/book --minutes 5", "any text"),
        ("qkv train translate pairs.tsv -o runs/pairs --minutes 20", "columns source and target"),
        ("qkv evaluate runs/mine test.csv", "its scores on other data"),
        ("qkv cluster runs/mine texts.txt", "groups of similar texts"),
    )


def _command_lines(commands: Commands) -> Iterator[str]:
    for command, purpose in commands:
        yield f"  {command}"
        yield f"      {purpose}"


def _doubt(faithful: bool) -> str:
    if faithful:
        return ""
    return " (?)"


def _effect(word: LabelWord) -> float:
    return word.occlusion or 0.0


def _word_with_effect(word: LabelWord) -> str:
    return f"{one_line(word.word.text)} [{_effect(word):+.1f}]".replace("-", "−")


def _truncate(line: str, width: int) -> str:
    flat = one_line(line)
    if len(flat) <= width:
        return flat
    return f"{flat[: width - 1]}…"
