"""`qkv check`: proofs on a model, and where one of them fails."""

import sys
from collections.abc import Iterator
from itertools import islice
from textwrap import wrap
from typing import TYPE_CHECKING, Annotated

import typer

from qkv.cli.options import File, ModelPath, Threads, load_engine
from qkv.cli.progress import print_stderr

if TYPE_CHECKING:
    from qkv.checks import CheckReport, CheckResult
    from qkv.engine.engine import Engine

WIDTH = 80  # columns


def check(
    model: ModelPath,
    file: File = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="A few short texts: what train and import run.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
    threads: Threads = None,
) -> None:
    """Prove what must hold for every model, or show where it first does not.

    No future leak; padding, batches, caches and packing change nothing; every layer's quick kernel
    is the definition; gradients add up and none is missing; what is saved is what is loaded; texts
    come back from tokens; 8 bits are close. Exit code 1 if one of them fails.

    \b
    Examples:
      qkv check runs/reviews
      qkv check models/all-MiniLM-L6-v2 --json
      qkv check runs/book --file hard-cases.txt
    """
    from json import dumps

    from qkv.checks.model_under_test import MAX_TEXTS
    from qkv.cli.options import read_texts
    from qkv.errors import UsageError

    lines: Iterator[str] = iter(())
    if file is not None:
        lines = read_texts(None, file)
    texts = list(islice(lines, MAX_TEXTS))
    if file is not None and not any(texts):
        raise UsageError(f"{file} holds no text to check with")
    rest = sum(1 for _ in lines)
    if rest:
        print_stderr(f"note: only the first {MAX_TEXTS} of {MAX_TEXTS + rest:,} texts are tried")
    report = run(load_engine(model, threads=threads), texts, quick, show=not json)
    if json:
        typer.echo(dumps(report.fields(), ensure_ascii=False))
    if not report.ok:
        raise typer.Exit(1)


def run(engine: "Engine", texts: list[str], quick: bool, show: bool) -> "CheckReport":
    """All checks, told as they come: lines on standard output, or signs of life beside it."""
    from qkv.checks import CHECKS
    from qkv.checks import check as prove

    names = [each.name for each in CHECKS]

    def tell(result: "CheckResult") -> None:
        _sign("")
        if show:
            typer.echo(lines(result, max(map(len, names))))
        following = names[names.index(result.name) + 1 :]
        _sign(f"{following[0]} …" if following else "")

    _sign(f"{names[0]} …")
    report = prove(engine, texts, quick=quick, on_result=tell)
    if show:
        tell_end(report)
    return report


def tell_end(report: "CheckReport") -> None:
    """What all of it comes to; the first violation with its place."""
    from qkv.checks import CHECKS

    for remark in report.remarks:
        print_stderr(f"note: {remark}")
    first = report.first_failure
    if first is None:
        typer.echo(verdict(report))
        return
    violation = next(each.violation for each in CHECKS if each.name == first.name)
    for line in (f"{first.name} failed: {violation}", f"first at: {first.location}"):
        typer.echo("\n".join(wrap(line, WIDTH)))


def verdict(report: "CheckReport") -> str:
    count = sum(result.applies for result in report.checks)
    return f"all {count} checks that apply hold"


def lines(result: "CheckResult", width: int) -> str:
    """Whether it holds, how far off it is and how far is allowed; below that what is to be said."""
    if result.worst is None:
        head = f"– {result.name:<{width}}  does not apply"
    else:
        sign = "✓" if result.ok else "✗"
        off = f"{result.worst:.2g}"
        head = f"{sign} {result.name:<{width}}  {off:<8} allowed {result.tolerance:g}"
    return "\n".join([head, *(f"    {said}" for said in wrap(result.remark, WIDTH - 4))])


def quick_check(engine: "Engine") -> bool:
    """The quick form at the end of another command: whether all holds, and a line that says it."""
    from qkv.checks import check as prove
    from qkv.errors import QkvError

    try:
        report = prove(engine, quick=True)
    except QkvError as error:
        print_stderr(f"note: the model was not checked: {error}")
        return True
    first = report.first_failure
    if first is None:
        print_stderr(f"checked: {verdict(report)}")
    else:
        print_stderr(
            f"warning: {first.name} does not hold, first at {first.location}; see qkv check"
        )
    return report.ok


def _sign(text: str) -> None:
    """What is at work, on a terminal only."""
    if sys.stderr.isatty():
        sys.stderr.write(f"\r\033[K{text}")
        sys.stderr.flush()
