"""The page of a tour: what the terminal was told, with pictures."""

from importlib.resources import files
from pathlib import Path

import qkv
from qkv.check import Report
from qkv.report.document import document
from qkv.report.markup import escaped, paragraph, section, table
from qkv.tour.commands import Lines, for_ones_own, for_these
from qkv.tour.page.example import example
from qkv.tour.page.groups import groups
from qkv.tour.page.models import language, sentiment, translation
from qkv.tour.told import Told


def page(told: Told) -> str:
    """One file of HTML."""
    style = (files("qkv.tour.page") / "page.css").read_text("utf-8")
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


def _result(report: Report, at: int) -> str:
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
