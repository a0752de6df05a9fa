"""The tour for a terminal of 80 columns: plain lines, which read as well in a file."""

import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from textwrap import wrap

from qkv.checks import CheckReport
from qkv.files import one_line
from qkv.interpret.attribution.label import LabelWord
from qkv.interpret.examples import POEM
from qkv.interpret.render.sections import WalkView
from qkv.interpret.render.terminal_text import render_text
from qkv.interpret.walk import walk
from qkv.tour.results import Groups, Judgement, Outcome, Rendering

# FOLDED tour/commands: What to do next: commands for the three models of a tour, and for one's
#   own files.
# FOLDED tour/answers: What the three models answered, in lines for the terminal.

REVIEW = "The hotel was never dull."

SENTENCE = "She arrives on May 2."

Lines = tuple[tuple[str, str], ...]  # a command and what it is for


def for_these(folder: Path) -> Lines:
    """Every one of these runs as it stands."""
    sentiment, language, translation = (
        shlex.quote(str(folder / name)) for name in ("sentiment", "language", "translation")
    )
    return (
        (f'qkv classify {sentiment} "{REVIEW}"', "a label"),
        (f'qkv explain "{REVIEW}" --model {sentiment} --why', "and the words that made it"),
        (f'qkv generate {language} "Return the" --max-tokens 60', "more of it"),
        (f'qkv translate {translation} "{SENTENCE}" --alignment', "word by word"),
        (f'qkv explain "{SENTENCE}" --model {translation} -o open.html', "all its numbers"),
        (f"qkv inspect {language}", "what it is made of"),
        (f"qkv check {translation}", "the proofs again"),
    )


def for_ones_own() -> Lines:
    """The same with a file of one's own."""
    return (
        ("qkv train classify reviews.csv -o runs/mine --minutes 5", "columns text and label"),
        ("qkv train language book.txt -o runs/book --minutes 5", "any text"),
        ("qkv train translate pairs.tsv -o runs/pairs --minutes 20", "columns source and target"),
        ("qkv evaluate runs/mine test.csv", "its scores on other data"),
        ("qkv cluster runs/mine texts.txt", "groups of similar texts"),
    )


WIDTH = 80

STEPS = ("weights", "output")  # of the worked example


def heading(number: int, title: str) -> Iterator[str]:
    line = f"{number}. {title}"
    yield from ("", line, "─" * len(line))


def example() -> Iterator[str]:
    """What attention weighs and what comes out; the other steps are a command away."""
    yield render_text(WalkView(walk(POEM), steps=STEPS), WIDTH)
    yield ""
    yield from said("Every step with its arithmetic: qkv explain")


def trained(outcome: Outcome) -> Iterator[str]:
    yield from said(outcome.trained)
    yield from said(outcome.judged)


def grouped(found: Groups) -> Iterator[str]:
    """Each group by its words, what its texts are labelled, and a few of them."""
    count, clusters = len(found.clustering.texts), found.clustering.clusters
    yield from said(
        f"{count:,} held-out reviews fall into {len(clusters)} groups by the vectors of the "
        "encoder. It learnt to part labels, so groups part them too; grouping itself sees none."
    )
    for each in clusters:
        label, share = found.share(each.id)
        yield ""
        yield from said(f"{each.size:,} texts: {each.name} ({share:.0%} are {label})")
        for number in found.members(each.id):
            yield f"  {_cut(found.clustering.texts[number], WIDTH - 2)}"


def proved(name: str, report: CheckReport) -> str:
    """One line; the first violation with its place, if there is one."""
    applying = [result for result in report.checks if result.applies]
    holding = sum(result.ok for result in applying)
    line = f"{name:<12} {holding} of {len(applying)} checks hold"
    first = report.first_failure
    return line if first is None else f"{line}; {first.name} does not, first at {first.location}"


def ending(folder: Path, page: Path) -> Iterator[str]:
    """Where everything is, and what to do with it."""
    yield from ("", "Next", "────")
    yield f"The page with pictures: {page}"
    names = ", ".join(str(folder / name) for name in ("sentiment", "language", "translation"))
    yield from said(f"The three models stay: {names}.")
    yield ""
    yield from _commands(for_these(folder))
    yield ""
    yield "With a file of your own:"
    yield from _commands(for_ones_own())


def _commands(lines: Lines) -> Iterator[str]:
    for command, purpose in lines:
        yield f"  {command}"
        yield f"      {purpose}"


def said(line: str, indent: str = "") -> Iterator[str]:
    yield from wrap(line, WIDTH, initial_indent=indent, subsequent_indent=indent)


def _cut(line: str, room: int) -> str:
    flat = one_line(line)
    return flat if len(flat) <= room else f"{flat[: room - 1]}…"


WORDS = 3  # that are named for a label

DOUBT = "; where it does not (?), do not rely on them."


def judged(found: Sequence[Judgement]) -> Iterator[str]:
    """Each review with its label and the words that made it; then how far to trust that."""
    for each in found:
        reason = each.reason
        yield ""
        yield from said(each.review.text)
        wrong = "" if each.right else f", but it is {each.review.label}"
        yield f"  → {reason.label} ({reason.probability:.3f}){wrong}"
        words = ", ".join(map(_weighed, strongest(each)))
        doubt = "" if each.sure else " (?)"
        yield from said(f"made by {words}{doubt}" if words else "no one word made it", "    ")
    yield ""
    yield from said(
        "In brackets: how far the log-odds of the label fall without the word. "
        + trust([each.sure for each in found], "deleting", "reviews")
    )


def trust(sure: Sequence[bool], doing: str, texts: str) -> str:
    """For how many of the texts the words named are better than chance, and what (?) says."""
    return (
        f"For {sum(sure)} of {len(sure)} {texts}, {doing} the words named moves the answer "
        f"clearly more than {doing} random ones{DOUBT if not all(sure) else '.'}"
    )


def strongest(judgement: Judgement) -> list[LabelWord]:
    """The words without which the label would be least sure, in the order of the text."""
    words = judgement.reason.words
    order = sorted(words, key=lambda word: -(word.occlusion or 0.0))[:WORDS]
    return [word for word in words if word in order and (word.occlusion or 0.0) > 0]


def written(paragraph: str) -> Iterator[str]:
    """What the language model wrote, between bars."""
    yield ""
    for line in paragraph.rstrip().splitlines():
        for folded in wrap(line, WIDTH - 4, drop_whitespace=False) or [""]:
            yield f"  │ {folded}".rstrip()


def rendered(found: Sequence[Rendering]) -> Iterator[str]:
    """Each sentence, its translation, and the source word that each word looked at."""
    for each in found:
        yield ""
        yield from said(each.pair.source)
        yield from said(f"→ {each.reason.target}", "  ")
        if not each.right:
            yield from said(f"it should be: {each.pair.target}", "    ")
        doubt = "" if each.sure else " (?)"
        yield from said(" · ".join(links(each)) + doubt, "    ")
    yield ""
    yield from said(
        "After ←: the source word that got most of its attention. "
        + trust([each.sure for each in found], "hiding", "sentences")
    )


def links(rendering: Rendering) -> list[str]:
    """Word by word, full stops and the like left out."""
    reason = rendering.reason
    return [
        f"{word.word.text} ← {reason.sources[word.most_attended].word.text}"
        for word in reason.targets
        if any(letter.isalnum() for letter in word.word.text)
    ]


def _weighed(word: LabelWord) -> str:
    return f"{one_line(word.word.text)} [{word.occlusion or 0.0:+.1f}]".replace("-", "−")
