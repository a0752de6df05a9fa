"""The options of all commands that run a model, and the model they open."""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from qkv.cli.flags import spell_flags
from qkv.cli.progress import say
from qkv.errors import UsageError, unknown

if TYPE_CHECKING:
    from qkv.engine.engine import Engine

if TYPE_CHECKING:
    from qkv.engine.embed import Long

# FOLDED cli/names: The names that options take, written here so that a shell can complete them
#   in no time.
#
#   What they name is in packages that take a second to import; a test holds the two together.
# FOLDED cli/long_texts: Texts that are longer than a model reads: what to do with them, and
#   what is told of them.
# FOLDED cli/exclusive: Options that cannot be given together.
# FOLDED cli/texts: The texts a command answers for: its arguments, the lines of a file, or
#   standard input.

ModelPath = Annotated[
    Path,
    typer.Argument(help="A bundle or a public checkpoint.", show_default=False),
]

Int8 = Annotated[bool, typer.Option("--int8", help="Matrices in 8 bits: smaller and quicker.")]

Compile = Annotated[
    bool,
    typer.Option("--compile", help="Inner loops compiled for this machine, once: quicker."),
]

Threads = Annotated[
    int | None, typer.Option("--threads", min=1, help="Cores to use; all of them if not given.")
]

BatchTokens = Annotated[
    int | None, typer.Option("--batch-tokens", min=1, help="Tokens computed at a time.")
]


def opened(
    model: Path, int8: bool = False, threads: int | None = None, compile: bool = False
) -> "Engine":
    """The model, ready to answer."""
    import os

    from qkv.cli.progress import say
    from qkv.gc_pause import gc_paused

    with gc_paused():
        import torch

        from qkv.engine.engine import Engine
        from qkv.machine import cores
        from qkv.machine.resources import reuse_freed_memory

    if threads is not None:
        there = cores().usable
        if threads > there:
            raise UsageError(
                f"--threads {threads} asks for more than the {there} cores this program may use; "
                f"pass {there} or fewer, more would only wait"
            )
        torch.set_num_threads(threads)
        os.environ["RAYON_NUM_THREADS"] = str(threads)  # of the tokenizers, before their first use
    engine = Engine.load(model, int8=int8, compile=compile)
    reuse_freed_memory()  # from here on: what was only needed to load it is given back
    for remark in engine.warnings:
        say(f"note: {spell_flags(remark, {'compile': '--compile'})}")
    return engine


JOBS = ("language", "masked", "classify", "translate", "embed")

CORPORA = ("language", "classify", "translate", "embed")

SIZES = ("tiny", "small", "medium")

PUBLISHED = (
    "paper-base", "paper-big", "bert-base", "minilm-l6", "gpt2", "t5-small", "llama-15m",
    "smollm-135m",
)  # fmt: skip

PRESETS = (*PUBLISHED, *(f"{job}-{size}" for job in JOBS for size in SIZES))

TOKENIZERS = ("bpe", "wordpiece", "unigram", "characters", "bytes")

OPTIMISERS = ("muon", "adamw")

DEVICES = ("auto", "cpu", "cuda", "mps")

LONG = ("error", "truncate", "average")

LONG_TRANSLATIONS = ("error", "sentences")

EXAMPLES = ("poem", "same", "cross", "heads", "factored")

FORMATS = ("hf",)

Completion = Callable[[str], list[str]]


def one_of(names: Sequence[str]) -> Completion:
    """What typer asks when the tabulator is pressed: the names that begin with what is typed."""

    def complete(incomplete: str) -> list[str]:
        return [name for name in names if name.startswith(incomplete)]

    return complete


def either(names: Sequence[str]) -> str:
    """All of them, as help says it: "a, b or c"."""
    return f"{', '.join(names[:-1])} or {names[-1]}"


WAYS = LONG

LongTexts = Annotated[
    str,
    typer.Option(
        "--long",
        help=f"Texts longer than the model reads: {either(WAYS)}.",
        autocompletion=one_of(WAYS),
    ),
]


def chosen(long: str) -> "Long":
    """What was said of long texts, if it is one of the three ways."""
    from qkv.engine.embed import LONG

    if long not in LONG:
        raise UsageError(unknown("way with --long texts", long, LONG))
    return long  # type: ignore[return-value]


def tell_long(long: int, total: int, way: str) -> None:
    """No text is cut silently."""
    if long:
        if way == "truncate":
            done = "only their beginnings are read"
        else:
            done = "read in windows"
        say(f"note: {long:,} of {total:,} texts are longer than the model reads; {done}")


def only_one(options: Mapping[str, object]) -> None:
    """Raise a UsageError if more than one of these options was given."""
    given = [name for name, value in options.items() if value]
    if len(given) > 1:
        raise UsageError(f"{' and '.join(given)} exclude each other; give one of them")


Texts = Annotated[
    list[str] | None,
    typer.Argument(help="Texts; none: lines of standard input.", show_default=False),
]

File = Annotated[Path | None, typer.Option("--file", help="A file with one text a line.")]

Json = Annotated[bool, typer.Option("--json", help="One JSON object a line.")]


def given_texts(texts: Sequence[str] | None, file: Path | None) -> Iterator[str]:
    """The texts, one after the other: a file may be larger than memory."""
    from qkv.data.files import decoded, lines, without_end

    only_one({"texts as arguments": texts, "--file": file})
    if texts:
        return iter(texts)
    if file is not None:
        return _noticed(lines(file), str(file))
    if sys.stdin.isatty():
        raise UsageError("give texts as arguments, with --file, or on standard input")
    given = decoded(sys.stdin.buffer, "standard input")
    return _noticed((without_end(line) for line in given), "standard input")


def _noticed(texts: Iterator[str], where: str) -> Iterator[str]:
    """The same texts; that there are none is said."""
    none = True
    for text in texts:
        none = False
        yield text
    if none:
        say(f"note: {where} is empty, so there is nothing to answer")


def told(text: str) -> str:
    """A text on one line, for people: cut, and nothing in it moves the cursor."""
    from qkv.files import one_line

    if text.strip():
        line = one_line(text)
    else:
        line = repr(text[:20])
    if len(line) <= 70:
        return line
    return f"{line[:70]}…"
