"""`qkv worksheet`: exercises to print or to fill in, and their marking."""

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from qkv.cli.explain import (
    Heads,
    MaskOption,
    NoScale,
    Precision,
    Standalone,
    override_sheet,
    step_names,
    terminal_width,
)
from qkv.cli.options import EXAMPLES, complete_from, join_or, mutually_exclusive
from qkv.cli.progress import print_stderr
from qkv.errors import UsageError, WorksheetError

if TYPE_CHECKING:
    from qkv.interpret import Walk, Worksheet

DEFAULT_BLANKS = 6
DEFAULT_WIDTH = 2

option = typer.Option

Source = Annotated[
    str | None,
    typer.Argument(
        metavar="EXAMPLE|FILE",
        help=f"{join_or(EXAMPLES)}, or a worksheet of your own; default poem.",
        autocompletion=complete_from(EXAMPLES),
        show_default=False,
    ),
]
Quiz = Annotated[bool, option("--quiz", help="Leave only a few cells blank; printed without -o.")]
Blank = Annotated[
    int | None, option(min=1, help=f"With --quiz: how many cells, {DEFAULT_BLANKS} by default.")
]
Words = Annotated[
    str | None, option(help="A new exercise for these words, with numbers of its own.")
]
Width = Annotated[
    int | None,
    option(min=1, max=8, help=f"With --words: numbers per word, {DEFAULT_WIDTH} by default."),
]
Seed = Annotated[int, option(min=0, help="Chooses the blank cells and the numbers of --words.")]
Steps = Annotated[str | None, option(help="Blank cells in these steps only, as in q,scores.")]
Check = Annotated[Path | None, option(help="Mark the answers in this file.")]
Output = Annotated[
    Path | None,
    option(
        "--output",
        "-o",
        help="A file to fill in .toml, a page .html, or a handout .pdf .png .svg .tex .md.",
    ),
]


def worksheet(
    example: Source = None,
    quiz: Quiz = False,
    blank: Blank = None,
    words: Words = None,
    width: Width = None,
    seed: Seed = 0,
    steps: Steps = None,
    mask: MaskOption = None,
    no_scale: NoScale = False,
    heads: Heads = None,
    precision: Precision = 4,
    check: Check = None,
    output: Output = None,
    standalone: Standalone = False,
) -> int:
    """Make an exercise of attention by hand, and mark the answers.

    Without options: a blank worksheet of the example "Write a poem", as a TOML file to fill in.
    With --quiz: the worked example with a few cells left out.

    \b
    Examples:
      qkv worksheet -o poem.toml
      qkv worksheet --check poem.toml
      qkv worksheet --quiz
      qkv worksheet --quiz heads --blank 10 --seed 7 -o quiz.pdf
      qkv worksheet --words "the cat sat" --seed 3 -o cat.toml
      qkv worksheet --mask causal --steps scores,weights -o handout.tex --standalone

    Marking shows which cells are right and wrong, with a hint for each wrong one; blank cells are
    only counted. The exit code is 1 if a cell is wrong. `explain --worksheet FILE` shows the
    solution.
    """
    if check is not None:
        others = {"an example": example, "--quiz": quiz, "--words": words, "--output": output}
        for name, value in others.items():
            mutually_exclusive({"--check": check, name: value})
        return _mark(check, precision)
    if blank is not None and not quiz:
        raise UsageError("--blank is for --quiz; add --quiz, or leave all cells blank")
    if width is not None and words is None:
        raise UsageError('--width is for --words; add the words, as in --words "the cat sat"')
    mutually_exclusive({"an example": example, "--words": words})
    sheet = _source_sheet(example, words, width or DEFAULT_WIDTH, seed)
    sheet = override_sheet(sheet, mask, no_scale, heads)
    _check_output(output, standalone)
    count = (blank or DEFAULT_BLANKS) if quiz else None
    _make(sheet, count, seed, step_names(steps), precision, output, standalone)
    return 0


def _source_sheet(example: str | None, words: str | None, width: int, seed: int) -> "Worksheet":
    """The example, the user's own worksheet without its answers, or new numbers for words."""
    from qkv.interpret import example as example_worksheet
    from qkv.interpret import random_worksheet, read_worksheet

    if words is not None:
        return random_worksheet(words.split(), width, seed)
    if example is not None and (example.endswith(".toml") or Path(example).is_file()):
        return dataclasses.replace(read_worksheet(Path(example)), answers={})
    return example_worksheet(example or "poem")


def _check_output(output: Path | None, standalone: bool) -> None:
    """Raise a UsageError about the file before anything is computed."""
    from qkv.interpret.export import HANDOUT_EXTENSIONS, check_walk_path

    if output is None:
        if standalone:
            raise UsageError("--standalone is for a LaTeX file; name one, as in -o quiz.tex")
        return
    check_walk_path(output, standalone, extensions=(".toml", *HANDOUT_EXTENSIONS))
    if output.suffix.lower() == ".toml" and output.exists():
        raise UsageError(f"{output} exists and may hold answers; remove it or name another file")


def _make(
    sheet: "Worksheet",
    count: int | None,
    seed: int,
    names: tuple[str, ...],
    precision: int,
    output: Path | None,
    standalone: bool,
) -> None:
    """Print or write the exercise; count: of blank cells, None for all that are computed."""
    from qkv.interpret import all_blanks, choose_blanks, exercise_toml, walk
    from qkv.interpret.export import write_walk
    from qkv.interpret.render import WalkView, render_text

    steps: Walk = walk(sheet)
    if count is None:
        blanks = all_blanks(steps, names)
    else:
        blanks = choose_blanks(steps, count, seed, names)
    view = WalkView(steps, precision, blanks=blanks)
    toml = exercise_toml(sheet, steps, blanks, precision, names)
    if output is None and count is None:
        typer.echo(toml, nl=False)
        return
    if output is None:
        typer.echo(render_text(view, terminal_width()))
        typer.echo(
            f"\n{len(blanks)} cells are blank. To have your answers marked, add -o quiz.toml, fill "
            "the file in,\nand run: qkv worksheet --check quiz.toml"
        )
        return
    if output.suffix.lower() == ".toml":
        _write_new(output, toml)
    else:
        write_walk(view, output, standalone=standalone)
    print_stderr(f"wrote {output}")


def _write_new(path: Path, text: str) -> None:
    from qkv.files import atomic_write, write_error_message

    try:
        atomic_write(path, text.encode("utf-8", "replace"))
    except OSError as error:
        raise UsageError(write_error_message(path, error)) from error


def _mark(path: Path, precision: int) -> int:
    """Print the marked answers; returns 1 if one is wrong."""
    from qkv.interpret import check_answers, read_worksheet, walk
    from qkv.interpret.render import WalkView, render_marks

    sheet = read_worksheet(path)
    if not sheet.answers:
        raise WorksheetError(f"{path}: there are no answers to mark; write them under [answers]")
    try:
        steps = walk(sheet)
        mistakes = tuple(check_answers(steps, sheet.answers))
    except WorksheetError as error:
        raise WorksheetError(f"{path}: {error}") from None
    view = WalkView(steps, precision, mistakes=mistakes)
    typer.echo(render_marks(view, sheet, terminal_width()))
    if mistakes:
        return 1
    return 0
