"""`qkv check`: verify the invariants of a model, and locate the first violation."""

import os
import re
import sys
from collections.abc import Iterator
from itertools import islice
from textwrap import wrap
from typing import TYPE_CHECKING, Annotated

import typer

from qkv.cli.options import File, ModelPath, TextColumn, Threads, load_engine
from qkv.cli.progress import CLEAR_LINE, print_stderr

if TYPE_CHECKING:
    from qkv.checks import CheckReport, CheckResult
    from qkv.engine import Engine

LINE_WIDTH = 80  # columns


def check(
    model: ModelPath,
    file: File = None,
    text: TextColumn = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Only a few short texts, as train and import do.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
    threads: Threads = None,
) -> None:
    """Check the invariants of a model; locate the first violation.

    No future leak; padding, batching, caches and packing do not change outputs; the fast kernel of
    every layer matches its definition; gradients accumulate and none is missing; saved weights load
    unchanged; decoding tokens restores the text; int8 is close. Exit code 1 if a check fails.

    The address of a running `qkv serve` instead of a model checks that its answers depend neither
    on other requests nor on streaming or caches; QKV_API_KEY is the key it is asked with.

    \b
    Examples:
      qkv check runs/reviews
      qkv check http://127.0.0.1:8000
      qkv check models/all-MiniLM-L6-v2 --json
      qkv check runs/book --file hard-cases.txt
    """
    from json import dumps

    from qkv.checks import MAX_TEXTS
    from qkv.cli.options import read_records
    from qkv.errors import UsageError

    address = re.match("https?:/+(.+)", str(model))
    if address is not None:
        if file is not None or quick:
            raise UsageError("--file and --quick are for models, not for a running server")
        scheme = str(model).partition(":")[0]
        _check_server(f"{scheme}://{address[1]}", json)
        return
    inputs: Iterator[str] = iter(())
    if file is not None:
        inputs = read_records(None, file, text).texts()
    texts = list(islice(inputs, MAX_TEXTS))
    if file is not None and not any(texts):
        raise UsageError(f"{file} holds no text to check with")
    rest = sum(1 for _ in inputs)
    if rest:
        print_stderr(f"note: only the first {MAX_TEXTS} of {MAX_TEXTS + rest:,} texts are used")
    report = run_checks(load_engine(model, threads=threads), texts, quick, show=not json)
    if json:
        typer.echo(dumps(report.fields(), ensure_ascii=False))
    if not report.ok:
        raise typer.Exit(1)


def _check_server(url: str, json: bool) -> None:
    """Check a running server; exits with 1 if an invariant does not hold."""
    from json import dumps

    from qkv.serve import LiveServer, check_server

    def on_result(result: "CheckResult") -> None:
        if not json:
            typer.echo(format_result(result, len(result.name)))

    report = check_server(LiveServer(url, os.environ.get("QKV_API_KEY")), on_result)
    if json:
        typer.echo(dumps(report.fields(), ensure_ascii=False))
    else:
        worst = max(result.worst or 0.0 for result in report.checks)
        typer.echo(f"{len(report.checks)} checks, worst {worst:.2g}")
    if not report.ok:
        raise typer.Exit(1)


def run_checks(engine: "Engine", texts: list[str], quick: bool, show: bool) -> "CheckReport":
    """Run all checks. With `show`, print each result as it comes, then the summary."""
    from qkv.checks import CHECKS
    from qkv.checks import check as check_engine

    names = [each.name for each in CHECKS]
    width = max(map(len, names))

    def on_result(result: "CheckResult") -> None:
        _show_current("")
        if show:
            typer.echo(format_result(result, width))
        next_index = names.index(result.name) + 1
        if next_index < len(names):
            _show_current(f"{names[next_index]} …")

    _show_current(f"{names[0]} …")
    report = check_engine(engine, texts, quick=quick, on_result=on_result)
    if show:
        print_summary(report)
    return report


def print_summary(report: "CheckReport") -> None:
    """The verdict; or the first violation, and where it is."""
    from qkv.checks import CHECKS

    for remark in report.remarks:
        print_stderr(f"note: {remark}")
    first = report.first_failure
    if first is None:
        typer.echo(summary_line(report))
        return
    violation = next(each.violation for each in CHECKS if each.name == first.name)
    for line in (f"{first.name} failed: {violation}", f"first at: {first.location}"):
        typer.echo("\n".join(wrap(line, LINE_WIDTH)))


def summary_line(report: "CheckReport") -> str:
    count = sum(result.applies for result in report.checks)
    return f"all {count} checks that apply hold"


def format_result(result: "CheckResult", width: int) -> str:
    """Whether the check passes, the worst deviation and its tolerance; below them the remark."""
    if result.worst is None:
        head = f"– {result.name:<{width}}  does not apply"
    else:
        sign = "✗"
        if result.ok:
            sign = "✓"
        worst = f"{result.worst:.2g}"
        head = f"{sign} {result.name:<{width}}  {worst:<8} allowed {result.tolerance:g}"
    remark = [f"    {line}" for line in wrap(result.remark, LINE_WIDTH - 4)]
    return "\n".join([head, *remark])


def quick_check(engine: "Engine") -> bool:
    """Run the quick checks at the end of another command; prints one line, returns whether ok."""
    from qkv.checks import check as check_engine
    from qkv.errors import QkvError

    try:
        report = check_engine(engine, quick=True)
    except QkvError as error:
        print_stderr(f"note: the model was not checked: {error}")
        return True
    first = report.first_failure
    if first is None:
        print_stderr(f"checked: {summary_line(report)}")
    else:
        print_stderr(f"warning: {first.name} fails, first at {first.location}; see qkv check")
    return report.ok


def _show_current(text: str) -> None:
    """Show the check that is running, on a terminal only."""
    if sys.stderr.isatty():
        sys.stderr.write(f"{CLEAR_LINE}{text}")
        sys.stderr.flush()
