"""Options that several commands share, the values they take, and the model and texts they name.

The values of options are repeated here, because the packages that define them take a second to
import and shell completion has to be instant; a test compares the two.
"""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from qkv.cli.flags import spell_flags
from qkv.cli.progress import print_stderr
from qkv.errors import UsageError, unknown

if TYPE_CHECKING:
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
    int | None, typer.Option("--threads", min=1, help="Cores to use; all by default.")
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

File = Annotated[Path | None, typer.Option("--file", help="A file with one text per line.")]

Json = Annotated[bool, typer.Option("--json", help="One JSON object per line.")]


def load_engine(
    model: Path, int8: bool = False, threads: int | None = None, compile: bool = False
) -> "Engine":
    """The model in this directory, with its threads set; its warnings go to standard error."""
    from qkv.gc_pause import gc_paused

    with gc_paused():
        import torch  # noqa: F401  only so that it is imported without garbage collection

        from qkv.engine import Engine
        from qkv.machine import reuse_freed_memory

    if threads is not None:
        _set_threads(threads)
    engine = Engine.load(model, int8=int8, compile=compile)
    # Only from here on, so that what loading alone needs goes back to the system.
    reuse_freed_memory()
    for warning in engine.warnings:
        print_stderr(f"note: {spell_flags(warning, {'compile': '--compile'})}")
    return engine


def _set_threads(threads: int) -> None:
    import os

    import torch

    from qkv.machine import cores

    usable = cores().usable
    if threads > usable:
        raise UsageError(
            f"--threads {threads} is more than the {usable} cores this program may use; "
            f"pass {usable} or fewer"
        )
    torch.set_num_threads(threads)
    # The Rust threads of the tokenizers library; it reads this at its first use.
    os.environ["RAYON_NUM_THREADS"] = str(threads)


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


def read_texts(texts: Sequence[str] | None, file: Path | None) -> Iterator[str]:
    """The texts one by one, since a file may be larger than memory.

    They come from the arguments, from the lines of a file, or else from standard input.
    """
    from qkv.data import decode_lines, strip_newline, text_lines

    mutually_exclusive({"texts as arguments": texts, "--file": file})
    if texts:
        return iter(texts)
    if file is not None:
        return _warn_if_empty(text_lines(file), str(file))
    if sys.stdin.isatty():
        raise UsageError("give texts as arguments, with --file, or on standard input")
    stdin_lines = decode_lines(sys.stdin.buffer, "standard input")
    return _warn_if_empty((strip_newline(line) for line in stdin_lines), "standard input")


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
