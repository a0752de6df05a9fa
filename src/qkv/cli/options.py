"""Options that several commands share, the values they take, and the model and texts they name.

The values of options are repeated here, because the packages that define them take a second to
import and shell completion has to be instant; a test compares the two.
"""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from qkv.cli.flags import spell_flags
from qkv.cli.progress import count_lines, print_stderr
from qkv.errors import DataError, UsageError, unknown

if TYPE_CHECKING:
    from qkv.data import Column, Records, TableOutput
    from qkv.engine import Engine
    from qkv.engine.embed import LongTextPolicy

JOBS = ("language", "masked", "classify", "translate", "embed")

CORPORA = ("language", "classify", "translate", "embed")

SIZES = ("tiny", "small", "medium")

PUBLISHED = (
    "paper-base",
    "paper-big",
    "bert-base",
    "minilm-l6",
    "gpt2",
    "t5-small",
    "llama-15m",
    "smollm-135m",
)

PRESETS = (*PUBLISHED, *(f"{job}-{size}" for job in JOBS for size in SIZES))

TOKENIZERS = ("bpe", "wordpiece", "unigram", "characters", "bytes")

OPTIMIZERS = ("muon", "adamw")

DEVICES = ("auto", "cpu", "cuda", "mps")

LONG = ("error", "truncate", "average")

LONG_TRANSLATIONS = ("error", "sentences")

EXAMPLES = ("poem", "same", "cross", "heads", "factored")

PATCH_PARTS = ("residual", "attention", "feed_forward", "cross", "heads")

FORMATS = ("hf", "gguf")

MAX_LINE = 70  # characters of a text that is printed next to a result

Completion = Callable[[str], list[str]]


def complete_from(names: Sequence[str]) -> Completion:
    """A completion for typer: the names that start with what has been typed."""

    def complete(incomplete: str) -> list[str]:
        return [name for name in names if name.startswith(incomplete)]

    return complete


def join_or(names: Sequence[str]) -> str:
    """The names as a phrase: "a, b or c"."""
    return f"{', '.join(names[:-1])} or {names[-1]}"


ModelPath = Annotated[
    Path,
    typer.Argument(help="A bundle or a public checkpoint.", show_default=False),
]

Int8 = Annotated[bool, typer.Option("--int8", help="Quantize weights to int8.")]

Compile = Annotated[
    bool,
    typer.Option("--compile", help="Faster, with kernels compiled once for this machine."),
]

Threads = Annotated[
    int | None,
    typer.Option("--threads", min=1, help="Cores to use; by default those other programs leave."),
]

BatchTokens = Annotated[int | None, typer.Option("--batch-tokens", min=1, help="Tokens per batch.")]

LongTexts = Annotated[
    str,
    typer.Option(
        "--long",
        help=f"Texts longer than the model's context: {join_or(LONG)}.",
        autocompletion=complete_from(LONG),
    ),
]

Texts = Annotated[
    list[str] | None,
    typer.Argument(help="Texts; without any, lines of standard input.", show_default=False),
]

File = Annotated[
    Path | None,
    typer.Option("--file", help="A table (.csv, .xlsx, …), or a file with one text per line."),
]

TextColumn = Annotated[
    str | None,
    typer.Option("--text", help="Column of a table's texts, by name or number from 1."),
]

AsText = Annotated[
    bool, typer.Option("--as-text", help="Arguments are texts, even if files have these names.")
]

TableFile = Annotated[
    Path | None,
    typer.Option(
        "--output",
        "-o",
        help="Write a table with all columns: .csv, .tsv, .jsonl, .parquet or .xlsx.",
    ),
]

Force = Annotated[bool, typer.Option("--force", help="Overwrite an existing file.")]

Json = Annotated[bool, typer.Option("--json", help="One JSON object per line.")]


def load_engine(
    model: Path, int8: bool = False, threads: int | None = None, compile: bool = False
) -> "Engine":
    """The model in this directory, with its threads set; its warnings go to standard error."""
    from qkv.gc_pause import gc_paused
    from qkv.machine import watch_load

    watch_load()
    with gc_paused():
        import torch  # noqa: F401  only so that it is imported without garbage collection

        from qkv.engine import Engine
        from qkv.machine import reuse_freed_memory

    choose_threads(threads)
    engine = Engine.load(model, int8=int8, compile=compile)
    # Only from here on, so that what loading alone needs goes back to the system.
    reuse_freed_memory()
    for warning in engine.warnings:
        print_stderr(f"note: {spell_flags(warning, {'compile': '--compile'})}")
    return engine


def choose_threads(threads: int | None) -> None:
    """Set the number of threads if there is one; otherwise it follows the load of the machine."""
    from qkv.machine import set_threads

    if threads is not None:
        set_threads(threads)


def check_long(long: str) -> "LongTextPolicy":
    """The value of --long; raises a UsageError for one that does not exist."""
    from qkv.engine.embed import LONG_TEXT_POLICIES

    if long not in LONG_TEXT_POLICIES:
        raise UsageError(unknown("value for --long", long, LONG_TEXT_POLICIES))
    return long  # type: ignore[return-value]


def warn_long(count: int, total: int, long: str) -> None:
    """Print how many texts exceeded the context, and what was done: none is cut silently."""
    if not count:
        return
    treatment = "averaged over windows"
    if long == "truncate":
        treatment = "truncated"
    print_stderr(f"note: {count:,} of {total:,} texts exceed the model's context; {treatment}")


def mutually_exclusive(options: Mapping[str, object]) -> None:
    """Raise a UsageError if more than one of these options has a value."""
    names = [name for name, value in options.items() if value]
    if len(names) > 1:
        raise UsageError(f"{' and '.join(names)} exclude each other; give one of them")


def read_records(
    texts: Sequence[str] | None,
    file: Path | None,
    text: str | None = None,
    as_text: bool = False,
    role: str = "text",
) -> "Records":
    """The rows one by one, since a file may be larger than memory.

    They come from the arguments, from a table or the lines of a file, or else from standard input.
    text: the column of a table. as_text: an argument may be the name of a file. role: what the
    column of a table is for, which decides the titles that are known.
    """
    from qkv.data import decode_lines, is_table, open_table, strip_newline, text_records

    mutually_exclusive({"texts as arguments": texts, "--file": file})
    if file is not None and is_table(file):
        try:
            records = open_table(file, text, role)
        except DataError as error:
            raise DataError(spell_flags(str(error), {role: "--text"})) from None
        for remark in records.remarks:
            print_stderr(f"note: {remark}")
        return records
    if text is not None:
        raise UsageError(f"--text {text} is a column of a table; name the table with --file")
    if texts:
        if not as_text:
            refuse_file_names(texts, "--file")
        return text_records(texts, len(texts))
    if file is not None:
        return text_records(_warn_if_empty(_plain_lines(file), str(file)), count_lines(file))
    if sys.stdin.isatty():
        raise UsageError("give texts as arguments, with --file, or on standard input")
    stdin_lines = decode_lines(sys.stdin.buffer, "standard input")
    lines = (strip_newline(line) for line in stdin_lines)
    return text_records(_warn_if_empty(lines, "standard input"))


def refuse_file_names(texts: Sequence[str], option: str | None = None) -> None:
    """Raise a UsageError if a text is the name of a file, which would be answered as a text.

    option: the one that takes a file instead, if the command has one.
    """
    for text in texts:
        if not _is_file_name(text):
            continue
        remedy = "pass --as-text if its name is the text"
        if option is not None:
            remedy = f"to read it, pass {option} {text}; if its name is the text, add --as-text"
        raise UsageError(f"{text} is a file, not a text; {remedy}")


def _is_file_name(text: str) -> bool:
    try:
        return Path(text).is_file()
    except (OSError, ValueError):  # too long for a name, or with a zero byte
        return False


def _plain_lines(file: Path) -> Iterator[str]:
    """The lines of a text file; a format that has to be converted first is refused."""
    from qkv.data import CONVERSION_HINTS, text_lines

    suffix = file.suffix.lower()
    if suffix != ".txt" and suffix in CONVERSION_HINTS and file.exists():
        raise UsageError(f"cannot read {file}; {CONVERSION_HINTS[suffix]}")
    return text_lines(file)


def check_output(output: Path | None, force: bool, json: bool) -> None:
    """Raise an error about the table to write before the model is loaded."""
    from qkv.data import check_table_path

    if output is None:
        if force:
            raise UsageError("--force is for a file; name it with -o")
        return
    mutually_exclusive({"-o": output, "--json": json})
    check_table_path(output, force)


@contextmanager
def open_output(
    output: Path,
    records: "Records",
    results: Sequence["Column"],
    blank_texts: bool = False,
) -> Iterator["TableOutput"]:
    """The table to write, with notes about its columns, rows without a text, and its size."""
    from qkv.data import table_output

    with table_output(output, records, results, blank_texts=blank_texts) as table:
        note_renamed(table.renamed)
        yield table
    if table.blank_rows:
        names = " and ".join(column.name for column in results[:2])
        rows = "1 row has" if table.blank_rows == 1 else f"{table.blank_rows:,} rows have"
        print_stderr(f"note: {rows} no text; {names} left empty")
    print_stderr(f"wrote {table.rows:,} rows to {output}")


def note_renamed(renamed: Mapping[str, str]) -> None:
    """Print which columns of a table have another name, because theirs was taken."""
    for name, other in renamed.items():
        print_stderr(f'note: there is a column "{name}" already; the new one is "{other}"')


def _warn_if_empty(texts: Iterator[str], source: str) -> Iterator[str]:
    """The same texts, and a note at the end if there were none."""
    is_empty = True
    for text in texts:
        is_empty = False
        yield text
    if is_empty:
        print_stderr(f"note: {source} is empty; nothing to do")


def shorten(text: str) -> str:
    """A text on one short line, with control characters escaped."""
    from qkv.files import one_line

    line = one_line(text)
    if not text.strip():
        line = repr(text[:20])  # quotes, so that blanks can be seen
    if len(line) <= MAX_LINE:
        return line
    return f"{line[:MAX_LINE]}…"
