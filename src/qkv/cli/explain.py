"""`qkv explain`: attention worked through by hand, for the notes' example or your own numbers."""

import dataclasses
import shutil
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from qkv.cli.options import EXAMPLES, complete_from, mutually_exclusive
from qkv.errors import UsageError, WorksheetError

if TYPE_CHECKING:
    from qkv.interpret.render.sections import WalkView
    from qkv.interpret.worksheet import Worksheet


class Format(StrEnum):
    """How the walk is written."""

    text = "text"
    markdown = "markdown"
    latex = "latex"
    json = "json"


class Side(StrEnum):
    """One half of an encoder–decoder."""

    encoder = "encoder"
    decoder = "decoder"


class MaskName(StrEnum):
    """What hides words from each other."""

    none = "none"
    causal = "causal"


def explain(
    text: Annotated[
        str | None, typer.Argument(help="The text a model reads.", show_default=False)
    ] = None,
    model: Annotated[
        Path | None, typer.Option(help="A bundle or a public checkpoint to look into.")
    ] = None,
    layer: Annotated[int | None, typer.Option(min=0, help="Which layer; the first is 0.")] = None,
    head: Annotated[int | None, typer.Option(min=0, help="Which head; the first is 0.")] = None,
    cross: Annotated[
        bool, typer.Option("--cross", help="A translator's attention to the source.")
    ] = False,
    side: Annotated[
        Side | None, typer.Option(help="Of a translator: encoder or decoder, the default.")
    ] = None,
    target: Annotated[
        str | None, typer.Option(help="Of a translator: the text written so far.")
    ] = None,
    top: Annotated[
        int, typer.Option(min=0, help="Queries, keys and features shown; 0 for all.")
    ] = 8,
    why: Annotated[
        bool, typer.Option("--why", help="Which words made the answer, and how far to trust it.")
    ] = False,
    label: Annotated[str | None, typer.Option(help="With --why: the label to explain.")] = None,
    token: Annotated[str | None, typer.Option(help="With --why: the next token.")] = None,
    against: Annotated[str | None, typer.Option(help="With --why: rather than this token.")] = None,
    no_mask: Annotated[
        bool, typer.Option("--no-mask", help="What if every position saw every other?")
    ] = False,
    no_position: Annotated[
        bool, typer.Option("--no-position", help="What if the order could not be seen?")
    ] = False,
    head_off: Annotated[
        list[str] | None,
        typer.Option("--head-off", help="What if a head were off? LAYER.HEAD; may be repeated."),
    ] = None,
    replace: Annotated[
        list[str] | None,
        typer.Option(
            "--replace", help="What if another token stood there? POSITION=TOKEN, counted from 0."
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            help="A page .html, a picture .png .svg .pdf, a trace .safetensors, or one value "
            ".csv .npy .md .tex.",
        ),
    ] = None,
    tensor: Annotated[
        str | None, typer.Option(help="With -o: which value, as decoder.0.attention.weights.")
    ] = None,
    example: Annotated[
        str | None,
        typer.Option(
            help="poem (the default), same, cross, heads or factored.",
            autocompletion=complete_from(EXAMPLES),
        ),
    ] = None,
    worksheet: Annotated[
        Path | None, typer.Option(help="Your own words and matrices, in a TOML file.")
    ] = None,
    worksheet_template: Annotated[
        bool, typer.Option("--worksheet-template", help="Print a worksheet to start from.")
    ] = False,
    notes: Annotated[
        bool, typer.Option("--notes", help="Compare with the study notes' printed matrices.")
    ] = False,
    mask: Annotated[MaskName | None, typer.Option(help="Hide later words from each word.")] = None,
    no_scale: Annotated[
        bool, typer.Option("--no-scale", help="Leave the division by √d_k out.")
    ] = False,
    heads: Annotated[int | None, typer.Option(help="Split Q, K and V into so many heads.")] = None,
    cell: Annotated[
        str | None,
        typer.Option(help="One cell's arithmetic: ROW,COLUMN as in poem,write or 3,1, from 1."),
    ] = None,
    steps: Annotated[
        str | None, typer.Option(help="Only these steps, as in scores,scaled,weights.")
    ] = None,
    precision: Annotated[int, typer.Option(min=1, max=12, help="Decimals shown.")] = 4,
    format: Annotated[
        Format | None, typer.Option(help="How to write it; text if not given.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Short for --format json.")] = False,
) -> int:
    """Walk through attention step by step, with every number and where it comes from.

    Without options: the worked example "Write a poem". A figure that a calculator gets differently
    from the figures shown is marked, with both values. With --model: the same walk through a head
    of your own model, the model's answer, and checks that the numbers are its own.

    \b
    Examples:
      qkv explain
      qkv explain --mask causal --cell poem,write
      qkv explain --example cross --format markdown
      qkv explain --worksheet-template > mine.toml
      qkv explain --worksheet mine.toml
      qkv explain "Once upon a time" --model runs/book --layer 1 --head 2
      qkv explain "what a film" --model runs/reviews --why
      qkv explain "Once upon a time" --model runs/book --head-off 0.3
      qkv explain "Once upon a time" --model runs/book -o page.html

    With answers in the worksheet, each wrong cell is marked and the exit code is 1.
    """
    from qkv.interpret.render.formats import answers_summary, notes_summary
    from qkv.interpret.render.sections import WalkView
    from qkv.interpret.walk import check_answers, walk
    from qkv.interpret.worksheet import TEMPLATE

    if model is not None:
        return _of_model(locals())
    if text is not None:
        raise UsageError("a text is explained with a model; name one, as in --model runs/book")
    sources = {
        "--example": example,
        "--worksheet": worksheet,
        "--worksheet-template": worksheet_template,
        "--notes": notes,
    }
    mutually_exclusive(sources)
    mutually_exclusive({"--json": json, "--format": format})
    for option, value in {"--mask": mask, "--no-scale": no_scale, "--heads": heads}.items():
        mutually_exclusive({"--notes": notes, option: value})
    if worksheet_template:
        typer.echo(TEMPLATE, nl=False)
        return 0
    sheet = _changed(_sheet(example, worksheet, notes), mask, no_scale, heads)
    try:
        walked = walk(sheet)
        slips = tuple(check_answers(walked, sheet.answers))
    except WorksheetError as error:
        raise WorksheetError(f"{worksheet}: {error}" if worksheet else str(error)) from None
    look = WalkView(walked, precision, _names(steps), slips)
    if json:
        written = Format.json
    else:
        written = format or Format.text
    typer.echo(_render(look, sheet, written, _cell(cell), notes))
    if slips and (cell or written in (Format.markdown, Format.latex)):
        if notes:
            said = notes_summary(look, sheet)
        else:
            said = answers_summary(look, sheet)
        typer.echo(said, err=True)  # the page may not show where the slips are
    return 1 if slips and not notes else 0


def _of_model(given: dict[str, Any]) -> int:
    """A model's own numbers instead of an example's."""
    from qkv.cli.explain_model import Wish, explain_model

    for name in ("example", "worksheet", "worksheet_template", "notes", "mask", "heads"):
        mutually_exclusive({"--model": given["model"], f"--{name.replace('_', '-')}": given[name]})
    edits = ("no_scale", "no_mask", "no_position", "head_off", "replace")
    for name in (*edits, "format", "cell", "steps"):
        if given["why"] and given[name]:
            raise UsageError(
                f"--why explains the model as it is, in its own words; leave "
                f"--{name.replace('_', '-')} out"
            )
    for name in ("label", "token", "against"):
        if given[name] is not None and not given["why"]:
            raise UsageError(f"--{name} says what to explain; add --why")
    if given["text"] is None:
        raise UsageError('a model needs a text, as in qkv explain "Once upon a time" --model DIR')
    mutually_exclusive({"--json": given["json"], "--format": given["format"]})
    if given["json"]:
        written = Format.json
    else:
        written = given["format"] or Format.text
    side = given["side"]
    plain = ("model", "text", "target", "layer", "head", "cross", "top", "precision", "why")
    also = ("label", "token", "against", "no_scale", "no_mask", "no_position", "output", "tensor")
    return explain_model(
        Wish(
            **{name: given[name] for name in (*plain, *also)},
            side="" if side is None else side.value,
            steps=_names(given["steps"]),
            cell=_cell(given["cell"]),
            format=written.value,
            heads_off=tuple(given["head_off"] or ()),
            replaced=tuple(given["replace"] or ()),
            width=max(shutil.get_terminal_size((80, 24)).columns, 40),
        )
    )


def _sheet(example: str | None, worksheet: Path | None, notes: bool) -> "Worksheet":
    from qkv.interpret import examples
    from qkv.interpret.worksheet import read_worksheet

    if worksheet is not None:
        return read_worksheet(worksheet)
    if notes:
        return examples.notes_worksheet()
    return examples.example(example or "poem")


def _changed(
    sheet: "Worksheet", mask: MaskName | None, no_scale: bool, heads: int | None
) -> "Worksheet":
    """The worksheet with what the command line says instead."""
    if mask is not None:
        sheet = dataclasses.replace(sheet, causal=mask is MaskName.causal)
    if no_scale:
        sheet = dataclasses.replace(sheet, scaled=False)
    if heads is not None:
        if heads < 1:
            raise UsageError(f"--heads {heads} must be 1 or more")
        sheet = dataclasses.replace(sheet, heads=heads)
    return sheet


def _names(steps: str | None) -> tuple[str, ...]:
    return tuple(filter(None, (name.strip() for name in (steps or "").split(","))))


def _cell(cell: str | None) -> tuple[str, str] | None:
    if cell is None:
        return None
    row, comma, column = cell.rpartition(",")
    if not comma or not row.strip() or not column.strip():
        raise UsageError(f'--cell needs a row and a column, as in poem,write, not "{cell}"')
    return row.strip(), column.strip()


def _render(
    look: "WalkView", sheet: "Worksheet", written: Format, cell: tuple[str, str] | None, notes: bool
) -> str:
    from qkv.interpret.render.formats import (
        answers_summary,
        notes_summary,
        render_json,
        render_latex,
        render_markdown,
    )
    from qkv.interpret.render.sections import cell_lines
    from qkv.interpret.render.terminal_text import render_text

    if written is Format.json:
        return render_json(look, with_mistakes=bool(sheet.answers), cell=cell)
    if cell is not None:
        return "\n".join(cell_lines(look, *cell))
    if written is Format.markdown:
        return render_markdown(look)
    if written is Format.latex:
        return render_latex(look)
    if notes:
        return notes_summary(look, sheet)
    width = shutil.get_terminal_size((80, 24)).columns
    page = render_text(look, max(width, 40))
    if sheet.answers:
        return f"{page}\n\n{answers_summary(look, sheet)}"
    return page
