"""`qkv explain`: attention step by step, for the worked example, a worksheet or a model."""

import dataclasses
import shutil
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from qkv.cli.options import (
    EXAMPLES,
    PATCH_PARTS,
    AsText,
    Threads,
    choose_threads,
    complete_from,
    join_or,
    mutually_exclusive,
    refuse_file_names,
)
from qkv.cli.progress import print_stderr
from qkv.errors import UsageError, WorksheetError

if TYPE_CHECKING:
    from qkv.interpret import Worksheet
    from qkv.interpret.render import WalkView

MIN_WIDTH = 40  # columns; a narrower terminal wraps
DEFAULT_TOP = 8

# Without a model these have nothing to act on.
MODEL_OPTIONS = (
    "layer", "head", "cross", "side", "target", "top", "why", "label", "token", "against",
    "no_mask", "no_position", "head_off", "replace", "patch", "patch_from", "ablate", "steer",
    "patch_sweep", "tensor", "full",
)  # fmt: skip


class Format(StrEnum):
    """The format of the output."""

    text = "text"
    markdown = "markdown"
    latex = "latex"
    json = "json"


class Side(StrEnum):
    """One half of an encoder–decoder."""

    encoder = "encoder"
    decoder = "decoder"


class MaskName(StrEnum):
    """The attention mask of an example."""

    none = "none"
    causal = "causal"


option = typer.Option

Text = Annotated[str | None, typer.Argument(help="The text for --model.", show_default=False)]
Model = Annotated[Path | None, option(help="A bundle or a public checkpoint to explain.")]
Layer = Annotated[int | None, option(min=0, help="Layer, counted from 0.")]
Head = Annotated[int | None, option(min=0, help="Head, counted from 0.")]
Cross = Annotated[bool, option("--cross", help="Cross-attention of an encoder–decoder.")]
SideOption = Annotated[
    Side | None, option(help="Of an encoder–decoder: encoder, or decoder (the default).")
]
Target = Annotated[str | None, option(help="Of an encoder–decoder: the target text so far.")]
Top = Annotated[
    int | None,
    option(min=0, help="Number of queries, keys and features; 0 for all, 8 by default."),
]
Why = Annotated[
    bool, option("--why", help="Attribute the output to words, and test how faithful that is.")
]
Label = Annotated[str | None, option(help="With --why: the label to explain.")]
Token = Annotated[str | None, option(help="With --why: the next token to explain.")]
Against = Annotated[str | None, option(help="With --why: contrast with this token.")]
NoMask = Annotated[bool, option("--no-mask", help="What if: attend to every position.")]
NoPosition = Annotated[bool, option("--no-position", help="What if: without position encoding.")]
HeadOff = Annotated[
    list[str] | None,
    option("--head-off", help="What if: ablate a head, LAYER.HEAD; repeatable."),
]
Replace = Annotated[
    list[str] | None,
    option("--replace", help="What if: another token, POSITION=TOKEN, counted from 0."),
]
Patch = Annotated[
    list[str] | None,
    option(help="What if: NAME or NAME@POSITIONS from --patch-from, as in decoder.3@2,4-6."),
]
PatchFrom = Annotated[
    str | None, option(help="With --patch, --patch-sweep: the text whose activations are taken.")
]
Ablate = Annotated[
    list[str] | None,
    option(help="What if: zero an activation, NAME or NAME@POSITIONS; =mean for its mean."),
]
Steer = Annotated[
    list[str] | None,
    option(help="What if: add a steering vector, as in decoder.3=love.npy or =2.5*love.npy."),
]
PatchSweep = Annotated[
    str | None,
    option(
        help=f"Activation patching, layers × positions: {join_or(PATCH_PARTS)}.",
        autocompletion=complete_from(PATCH_PARTS),
    ),
]
Output = Annotated[
    Path | None,
    option(
        "--output",
        "-o",
        help="A page .html or a picture .png .svg .pdf; of an example or worksheet also .tex .md "
        ".json; of a model also a trace .safetensors or one value .csv .npy .md .tex.",
    ),
]
Standalone = Annotated[
    bool, option("--standalone", help="With LaTeX: a document that compiles as it is.")
]
Tensor = Annotated[
    str | None, option(help="With -o: which value, as in decoder.0.attention.weights.")
]
Full = Annotated[
    bool, option("--full", help="With -o page.html: all numbers, however large the page gets.")
]
Example = Annotated[
    str | None,
    option(help=f"{join_or(EXAMPLES)}; default poem.", autocompletion=complete_from(EXAMPLES)),
]
WorksheetFile = Annotated[Path | None, option(help="Your own words and matrices, in a TOML file.")]
WorksheetTemplate = Annotated[
    bool, option("--worksheet-template", help="Print a worksheet to start from.")
]
Notes = Annotated[bool, option("--notes", help="Compare with the study notes' printed matrices.")]
MaskOption = Annotated[MaskName | None, option(help="Mask later words for each word.")]
NoScale = Annotated[bool, option("--no-scale", help="Skip the division by √d_k.")]
Heads = Annotated[int | None, option(help="Split Q, K and V into this many heads.")]
Cell = Annotated[
    str | None,
    option(help="One cell's arithmetic: ROW,COLUMN as in poem,write or 3,1, from 1."),
]
Steps = Annotated[str | None, option(help="Only these steps, as in scores,scaled,weights.")]
Precision = Annotated[int, option(min=1, max=12, help="Decimals.")]
FormatOption = Annotated[Format | None, option(help="Output format; text by default.")]
JsonFormat = Annotated[bool, option("--json", help="Short for --format json.")]


def explain(
    text: Text = None,
    as_text: AsText = False,
    model: Model = None,
    layer: Layer = None,
    head: Head = None,
    cross: Cross = False,
    side: SideOption = None,
    target: Target = None,
    top: Top = None,
    why: Why = False,
    label: Label = None,
    token: Token = None,
    against: Against = None,
    no_mask: NoMask = False,
    no_position: NoPosition = False,
    head_off: HeadOff = None,
    replace: Replace = None,
    patch: Patch = None,
    patch_from: PatchFrom = None,
    ablate: Ablate = None,
    steer: Steer = None,
    patch_sweep: PatchSweep = None,
    output: Output = None,
    standalone: Standalone = False,
    tensor: Tensor = None,
    full: Full = False,
    example: Example = None,
    worksheet: WorksheetFile = None,
    worksheet_template: WorksheetTemplate = False,
    notes: Notes = False,
    mask: MaskOption = None,
    no_scale: NoScale = False,
    heads: Heads = None,
    cell: Cell = None,
    steps: Steps = None,
    precision: Precision = 4,
    format: FormatOption = None,
    json: JsonFormat = False,
    threads: Threads = None,
) -> int:
    """Walk through attention step by step, with every number.

    Without options: the worked example "Write a poem". A number that a calculator computes
    differently from the rounded ones on the page is marked, with both values. With --model: the
    same walk through a head of your own model, its output, and checks that the numbers are exact.

    \b
    Examples:
      qkv explain
      qkv explain --mask causal --cell poem,write
      qkv explain --example cross --format markdown
      qkv explain -o poem.html
      qkv explain --example heads -o heads.tex --standalone
      qkv explain --worksheet-template > mine.toml
      qkv explain --worksheet mine.toml
      qkv explain "Once upon a time" --model runs/book --layer 1 --head 2
      qkv explain "what a film" --model runs/reviews --why
      qkv explain "Once upon a time" --model runs/book --head-off 0.3
      qkv explain "a boy ran" --model runs/book --patch decoder.1@1 --patch-from "a girl ran"
      qkv explain "a boy ran" --model runs/book --ablate decoder.0.attention.output@-1=mean
      qkv explain "a boy ran" --model runs/book --patch-from "a girl ran" --patch-sweep residual
      qkv explain "Once upon a time" --model runs/book -o page.html

    With answers in the worksheet, each wrong cell is marked and the exit code is 1.
    """
    options = dict(locals())  # first, so that it holds the options and nothing else
    choose_threads(threads)
    mutually_exclusive({"--json": json, "--format": format})
    if json:
        format = Format.json
    options["format"] = format or Format.text
    if model is not None:
        return _explain_model(options, format)
    return _explain_worksheet(options)


def _explain_model(options: Mapping[str, Any], format: Format | None) -> int:
    """Explain a model's own numbers instead of an example's."""
    from qkv.cli.explain_model import ExplainArgs, explain_model

    sources = ("example", "worksheet", "worksheet_template", "notes", "mask", "heads")
    for name in (*sources, "standalone"):
        mutually_exclusive({"--model": options["model"], _flag(name): options[name]})
    if options["why"]:
        _check_options_of_why(options, format)
    for name in ("label", "token", "against"):
        if options[name] is not None and not (options["why"] or options["patch_sweep"]):
            raise UsageError(f"{_flag(name)} is for --why; add --why")
    if options["text"] is None:
        raise UsageError('a model needs a text, as in qkv explain "Once upon a time" --model DIR')
    if not options["as_text"]:
        refuse_file_names([options["text"]])
    names = [field.name for field in dataclasses.fields(ExplainArgs)]
    args: dict[str, Any] = {name: options.get(name) for name in names}
    args["side"] = options["side"] or ""
    if options["top"] is None:
        args["top"] = DEFAULT_TOP
    args["steps"] = step_names(options["steps"])
    args["cell"] = _parse_cell(options["cell"])
    for name in ("head_off", "replace", "patch", "ablate", "steer"):
        args[name] = tuple(options[name] or ())
    args["width"] = terminal_width()
    return explain_model(ExplainArgs(**args))


def _check_options_of_why(options: Mapping[str, Any], format: Format | None) -> None:
    """An attribution has no edits and no walk, so the options of these would have no effect."""
    edits = ("no_scale", "no_mask", "no_position", "head_off", "replace")
    patches = ("patch", "patch_from", "ablate", "steer", "patch_sweep")
    for name in (*edits, *patches, "cell", "steps"):
        if options[name]:
            raise UsageError(f"--why explains the unchanged model; leave {_flag(name)} out")
    if format is not None and not options["json"]:
        raise UsageError("--why has a format of its own; leave --format out")


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _explain_worksheet(options: Mapping[str, Any]) -> int:
    """Explain an example or the user's own worksheet; returns 1 if an answer in it is wrong."""
    from qkv.interpret import TEMPLATE

    _check_worksheet_options(options)
    if options["worksheet_template"]:
        typer.echo(TEMPLATE, nl=False)
        return 0
    sheet, view = _walk_sheet(options)
    if options["output"] is not None:
        return _write_walk(view, sheet, options)
    notes = options["notes"]
    cell = _parse_cell(options["cell"])
    typer.echo(_render(view, sheet, options["format"], cell, notes, options["standalone"]))
    if view.mistakes and (cell or options["format"] in (Format.markdown, Format.latex)):
        # This output may not show where the mistakes are.
        typer.echo(_summary(view, sheet, notes), err=True)
    if view.mistakes and not notes:
        return 1
    return 0


def _check_worksheet_options(options: Mapping[str, Any]) -> None:
    """Raise a UsageError about options that contradict each other, or that need a model."""
    if options["text"] is not None:
        raise UsageError("a text is explained with a model; name one, as in --model runs/book")
    for name in MODEL_OPTIONS:
        # Layer 0 is a value, though 0 equals False.
        if options[name] is not None and options[name] is not False:
            raise UsageError(f"{_flag(name)} is for a model; name one, as in --model runs/book")
    sources = ("example", "worksheet", "worksheet_template", "notes")
    mutually_exclusive({_flag(name): options[name] for name in sources})
    for name in ("mask", "no_scale", "heads"):
        mutually_exclusive({"--notes": options["notes"], _flag(name): options[name]})
    output = options["output"]
    if output is not None:
        from qkv.interpret.export import check_walk_path

        for name in ("worksheet_template", "cell", "json"):
            mutually_exclusive({"--output": output, _flag(name): options[name]})
        if options["format"] is not Format.text:
            raise UsageError("the file's suffix decides its format; leave --format out")
        check_walk_path(output, options["standalone"])
    elif options["standalone"] and (options["format"] is not Format.latex or options["cell"]):
        raise UsageError("--standalone is for LaTeX; add --format latex or -o FILE.tex")


def _walk_sheet(options: Mapping[str, Any]) -> tuple["Worksheet", "WalkView"]:
    """The worksheet that the options name, and the walk through it with its mistakes."""
    from qkv.interpret import check_answers, walk
    from qkv.interpret.render import WalkView

    path = options["worksheet"]
    sheet = _read_sheet(options["example"], path, options["notes"])
    sheet = override_sheet(sheet, options["mask"], options["no_scale"], options["heads"])
    try:
        steps = walk(sheet)
        mistakes = tuple(check_answers(steps, sheet.answers))
    except WorksheetError as error:
        if path is None:
            raise
        raise WorksheetError(f"{path}: {error}") from None
    return sheet, WalkView(steps, options["precision"], step_names(options["steps"]), mistakes)


def _write_walk(view: "WalkView", sheet: "Worksheet", options: Mapping[str, Any]) -> int:
    """Write the file; the result of checking answers goes to standard error."""
    from qkv.interpret.export import write_walk

    output = options["output"]
    write_walk(view, output, standalone=options["standalone"], with_mistakes=bool(sheet.answers))
    if sheet.answers:
        print_stderr(_summary(view, sheet, options["notes"]))
    print_stderr(f"wrote {output}")
    if view.mistakes and not options["notes"]:
        return 1
    return 0


def _summary(view: "WalkView", sheet: "Worksheet", notes: bool) -> str:
    """How many answers are right."""
    from qkv.interpret.render import answers_summary, notes_summary

    if notes:
        return notes_summary(view, sheet)
    return answers_summary(view, sheet)


def _read_sheet(example: str | None, path: Path | None, notes: bool) -> "Worksheet":
    from qkv.interpret import example as example_worksheet
    from qkv.interpret import notes_worksheet, read_worksheet

    if path is not None:
        return read_worksheet(path)
    if notes:
        return notes_worksheet()
    return example_worksheet(example or "poem")


def override_sheet(
    sheet: "Worksheet", mask: MaskName | None, no_scale: bool, heads: int | None
) -> "Worksheet":
    """The worksheet with the settings of the command line instead of its own."""
    if mask is not None:
        sheet = dataclasses.replace(sheet, causal=mask is MaskName.causal)
    if no_scale:
        sheet = dataclasses.replace(sheet, scaled=False)
    if heads is not None:
        if heads < 1:
            raise UsageError(f"--heads {heads} must be 1 or more")
        sheet = dataclasses.replace(sheet, heads=heads)
    return sheet


def step_names(steps: str | None) -> tuple[str, ...]:
    names = [name.strip() for name in (steps or "").split(",")]
    return tuple(filter(None, names))


def _parse_cell(cell: str | None) -> tuple[str, str] | None:
    if cell is None:
        return None
    row, comma, column = cell.rpartition(",")
    if not comma or not row.strip() or not column.strip():
        raise UsageError(f'--cell needs a row and a column, as in poem,write, not "{cell}"')
    return row.strip(), column.strip()


def terminal_width() -> int:
    return max(shutil.get_terminal_size((80, 24)).columns, MIN_WIDTH)


def _render(
    view: "WalkView",
    sheet: "Worksheet",
    format: Format,
    cell: tuple[str, str] | None,
    notes: bool,
    standalone: bool,
) -> str:
    from qkv.interpret.render import (
        cell_lines,
        render_json,
        render_latex,
        render_markdown,
        render_text,
        standalone_latex,
    )

    if format is Format.json:
        return render_json(view, with_mistakes=bool(sheet.answers), cell=cell)
    if cell is not None:
        return "\n".join(cell_lines(view, *cell))
    if format is Format.markdown:
        return render_markdown(view)
    if format is Format.latex:
        fragment = render_latex(view)
        return standalone_latex(fragment) if standalone else fragment
    if notes:
        return _summary(view, sheet, notes)
    page = render_text(view, terminal_width())
    if sheet.answers:
        return f"{page}\n\n{_summary(view, sheet, notes)}"
    return page
