"""The report as one HTML page: no network, no script, nothing beside it needed."""

import re
from collections.abc import Sequence

from qkv.report.curves import FAINT, HELD_OUT, INK, MUTED, TRAINING
from qkv.report.document import document
from qkv.report.markup import code, escaped, folded, paragraph, section, table
from qkv.report.mistakes import mistakes
from qkv.report.progress import Progress
from qkv.report.story import Story, Table
from qkv.report.wording import course, figure, name, verdict

# The picture's colours follow the page, light or dark.
COLOURS = {
    INK: "var(--ink)",
    MUTED: "var(--muted)",
    FAINT: "var(--faint)",
    TRAINING: "var(--training)",
    HELD_OUT: "var(--held-out)",
    "#ffffff": "none",
}


def page(story: Story, progress: Progress, svg: str) -> str:
    """The whole page, with the picture of the curves drawn into it."""
    sections = (
        section("How the training went", inline_picture(svg, course(progress, story.metric))),
        section("Scores on held-out data", _scores(story)),
        section("Labels and mistakes", mistakes(story.labels, story.confusion)),
        section("Samples", *map(_sample, story.samples)),
        section("Data", _data(story.data), _remarks(story.remarks)),
        section("How to use it", code("\n".join(story.use)) if story.use else ""),
        section("Recipe", folded("recipe.toml", code(story.recipe)) if story.recipe else ""),
    )
    return document(story.job, story.title, verdict(story), sections)


def inline_picture(svg: str, words: str, name: str = "") -> str:
    """The picture inline, with the words below it as its text alternative too.

    name: goes before every id of it, where a page has several pictures.
    """
    inline = svg[svg.index("<svg") :]
    inline = re.sub(r"\s*<(title|metadata)>.*?</\1>", "", inline, flags=re.DOTALL)
    inline = re.sub(r"font-family: [^;\"]+", "font-family: inherit", inline)
    inline = re.sub(r' (width|height)="[\d.]+pt"', "", inline)
    for colour, variable in COLOURS.items():
        inline = inline.replace(colour, variable)
    own = f"{name}-" if name else ""
    for reference in ('id="', 'href="#', "url(#") if name else ():
        inline = inline.replace(reference, f"{reference}{own}")
    inline = inline.replace("<svg", f'<svg role="img" aria-labelledby="{own}course"', 1)
    caption = f'<figcaption id="{own}course">{escaped(words)}</figcaption>'
    return f"<figure>\n{inline.strip()}\n{caption}\n</figure>"


def _scores(story: Story) -> str:
    """All scores, the watched one first, with the baseline's beside them if there is one."""
    what, theirs = story.baseline or ("", {})
    known = dict.fromkeys((story.metric, *story.scores, *theirs))
    names = [each for each in known if each in story.scores or each in theirs]
    if not names:
        return ""
    columns = ("score", "model", "baseline") if story.baseline else ("score", "model")
    rows = [
        (
            name(each) + " (watched)" * (each == story.metric),
            *(
                figure(of[each]) if each in of else "–"
                for of in (story.scores, theirs)[: len(columns) - 1]
            ),
        )
        for each in names
    ]
    direction = "higher" if story.higher_is_better else "lower"
    note = f"Of the {name(story.metric)}, {direction} is better."
    return table("Final scores", columns, rows) + paragraph(
        f"The baseline is {what}. {note}" if story.baseline else note
    )


def _sample(sample: Table) -> str:
    return table(sample.title, sample.columns, sample.rows, texts=len(sample.columns))


def _data(data: Sequence[tuple[str, str]]) -> str:
    return table("What it learned from", ("what", "value"), data, texts=2) if data else ""


def _remarks(remarks: Sequence[str]) -> str:
    items = "\n".join(f"<li>{escaped(remark)}</li>" for remark in remarks)
    return f"<h3>Worth knowing</h3>\n<ul>\n{items}\n</ul>" if remarks else ""
