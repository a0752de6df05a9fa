"""The program `qkv`: its commands, and what happens when one of them fails."""

import atexit
import codecs
import errno
import gc
import io
import os
import re
import sys
from collections.abc import Sequence
from typing import Annotated, Any, NoReturn

import typer

import qkv
from qkv.cli.check import check
from qkv.cli.classify import classify
from qkv.cli.cluster import cluster
from qkv.cli.convert import export, import_
from qkv.cli.data import data
from qkv.cli.doctor import doctor
from qkv.cli.embed import embed
from qkv.cli.evaluate import evaluate
from qkv.cli.explain import explain
from qkv.cli.flags import flags_of, spell_flags
from qkv.cli.generate import generate
from qkv.cli.inspect import inspect
from qkv.cli.lemma import lemma
from qkv.cli.similar import similar
from qkv.cli.tour import tour
from qkv.cli.train import plan, train
from qkv.cli.translate import translate
from qkv.errors import QkvError, unknown

# FOLDED cli/misunderstood: A command line that cannot be understood: what was typed, what is
#   expected, an example.
#
#   typer, and the click inside it, word this differently from version to version; what is
#   known of
#   their sentences is said better here, and anything else is passed on as it is.

EXPECTED = (
    (r"greater than or equal to (\S+)", r"must be \1 or more"),
    (r"less than or equal to (\S+)", r"must be \1 or less"),
    (r"valid integer", "must be a whole number"),
    (r"valid number", "must be a number"),
)

ONE_OF = re.compile(r"'([^']*)' is not one of ((?:'[^']*'(?:, )?)+)")


def misunderstood(error: Any, typed: Sequence[str]) -> str:
    """One sentence for a usage error of typer; `typed` is the command line, without `qkv`."""
    said = " ".join(error.format_message().split()).rstrip(".")
    context = getattr(error, "ctx", None)
    param = getattr(error, "param", None)
    if context:
        hint = f" (see: {context.command_path} --help)"
    else:
        hint = ""
    if said.startswith("Missing") and context:
        return said + _example(context) + hint
    if "unexpected extra argument" in said:
        return f"{said}; a text with spaces needs quotes around it{hint}"
    if param is None:
        return said + hint
    return (_value(said, param, typed) or said) + hint


def _value(said: str, param: Any, typed: Sequence[str]) -> str | None:
    """The sentence for a value that does not fit; None if it is not one of those known."""
    if param.param_type_name == "option":
        name = max(param.opts, key=len)
    else:
        name = str(param.name)
    if found := ONE_OF.search(said):
        return unknown(name, found[1], re.findall(r"'([^']*)'", found[2]))
    for pattern, expected in EXPECTED:
        if found := re.search(pattern, said):
            value = _typed(param.opts, typed)
            given = "" if value is None else f" {value}"
            return f"{name}{given} {found.expand(expected)}"
    return None


def _typed(names: Sequence[str], typed: Sequence[str]) -> str | None:
    """What stands behind the option, as two words or as one with =; the last one counts."""
    value = None
    for place, word in enumerate(typed):
        name, equals, rest = word.partition("=")
        if name in names:
            if equals:
                value = rest
            else:
                value = " ".join(typed[place + 1 : place + 2])
    return value


def _example(context: Any) -> str:
    """The first example of the command's help."""
    lines = (context.command.help or "").split("\n")
    examples = [line.strip() for line in lines if line.strip().startswith("qkv ")]
    if examples:
        return f"; as in: {examples[0]}"
    return ""


PLAIN = {
    "−": "-", "×": "x", "÷": "/", "√": "sqrt ", "·": "*", "∞": "inf", "ᵀ": "^T", "→": "->",
    "↓": "|", "–": "-", "…": "...", "✗": "x", "✓": "+", "█": "#", "─": "-", "Σ": "sum ", "±": "+-",
    "ᵢ": "_i", "²": "^2", "₁": "_1", "₂": "_2", "₃": "_3",
}  # fmt: skip

# Newer versions of typer carry a click of their own; this is the base of what either one raises
# when the command line cannot be understood.
Misunderstood: type[Exception] = next(
    kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "ClickException"
)

INTERRUPTED = 130  # the exit code after Ctrl-C, which newer versions of typer return

app = typer.Typer(
    name="qkv",
    help="The glass-box Transformer toolkit: build, train and look inside all three families.",
    epilog="Start with: qkv tour · qkv explain · qkv lemma. Each command has --help with examples.",
    invoke_without_command=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"qkv {qkv.__version__}")
        raise typer.Exit


@app.callback()
def _root(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


app.command()(tour)

app.command()(explain)

app.command()(lemma)

app.command()(train)

app.command()(plan)

app.command()(evaluate)

app.command()(generate)

app.command()(classify)

app.command()(translate)

app.command()(embed)

app.command()(similar)

app.command()(cluster)

app.command()(data)

app.command()(check)

app.command()(inspect)

app.command("import")(import_)

app.command()(export)

app.command()(doctor)


def main() -> NoReturn:
    """Run the command and exit: 0 done, 1 a check failed, 2 the input is at fault, 130 stopped."""
    _survive_any_terminal()
    atexit.register(gc.freeze)  # or the end waits until all that was imported is looked through
    try:
        code = app(standalone_mode=False)
    except QkvError as error:
        _fail(spell_flags(str(error), _flags(sys.argv[1:])))
    except Misunderstood as error:
        _fail(misunderstood(error, sys.argv[1:]))
    except (KeyboardInterrupt, typer.Abort):
        code = INTERRUPTED
    except (BrokenPipeError, SystemExit) as error:  # typer may exit by itself when a pipe breaks
        if not any(isinstance(e, BrokenPipeError) for e in (error, error.__context__)):
            raise
        _drop_output()  # the reader went away, as in `qkv explain | head`: nothing is wrong
        sys.exit(0)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EIO):
            raise
        _drop_output()
        _fail(f"cannot write the answer: {error.strerror}")
    if code == INTERRUPTED:
        print("interrupted", file=sys.stderr)
    sys.exit(code if isinstance(code, int) else 0)


def _flags(arguments: list[str]) -> dict[str, str]:
    """The flags of the command on this command line, by Python argument."""
    for command in app.registered_commands:
        if command.callback is not None:
            name = command.name or command.callback.__name__
            if name in arguments[:1]:
                return flags_of(command.callback)
    return {}


def _fail(message: str) -> NoReturn:
    print(f"qkv: {' '.join(message.split())}", file=sys.stderr)
    sys.exit(2)


def _drop_output() -> None:
    """What is still to be written has nowhere to go."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _survive_any_terminal() -> None:
    """A terminal that cannot show − or √ gets the nearest plain characters."""
    codecs.register_error("plain", _plain)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="plain")


def _plain(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeEncodeError)
    text = error.object[error.start : error.end]
    return "".join(PLAIN.get(character, "?") for character in text), error.end
