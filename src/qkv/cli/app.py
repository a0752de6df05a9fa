"""The program `qkv`: its commands, and how it reports errors and exits."""

import atexit
import codecs
import errno
import gc
import io
import os
import re
import shutil
import sys
from collections.abc import Sequence
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup

import qkv
from qkv.cli.chat import chat
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
from qkv.cli.serve import serve
from qkv.cli.similar import similar
from qkv.cli.tour import tour
from qkv.cli.train import plan, train
from qkv.cli.translate import translate
from qkv.cli.worksheet import worksheet
from qkv.errors import QkvError, unknown

# How typer, and the click inside it, word a value that does not fit, and how we do. Their wording
# changes between versions; a message that none of these match is printed as it is.
EXPECTATIONS = (
    (r"greater than or equal to (\S+)", r"must be \1 or more"),
    (r"less than or equal to (\S+)", r"must be \1 or less"),
    (r"valid integer", "must be a whole number"),
    (r"valid number", "must be a number"),
)

CHOICES = re.compile(r"'([^']*)' is not one of ((?:'[^']*'(?:, )?)+)")

# The nearest ASCII for characters that a terminal may not be able to show.
ASCII = {
    "−": "-", "×": "x", "÷": "/", "√": "sqrt ", "·": "*", "∞": "inf", "ᵀ": "^T", "→": "->",
    "↓": "|", "–": "-", "…": "...", "✗": "x", "✓": "+", "█": "#", "─": "-", "Σ": "sum ", "±": "+-",
    "ᵢ": "_i", "²": "^2", "₁": "_1", "₂": "_2", "₃": "_3",
}  # fmt: skip

# The base class of all usage errors. Newer versions of typer vendor click, so that it cannot be
# imported by name from one place.
ClickException: type[Exception] = next(
    kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "ClickException"
)

INTERRUPTED = 130  # exit code after Ctrl-C: 128 + SIGINT, as shells have it

MIN_HELP_WIDTH = 30
MAX_HELP_WIDTH = 78


class Program(TyperGroup):
    """The list of commands, each with its whole first sentence, as wide as the terminal."""

    def make_context(
        self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any
    ) -> Any:
        columns = shutil.get_terminal_size().columns
        # The default is never narrower than 50, and a narrow terminal breaks its lines anywhere.
        extra.setdefault("terminal_width", min(max(columns - 2, MIN_HELP_WIDTH), MAX_HELP_WIDTH))
        return super().make_context(info_name, args, parent, **extra)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        rows = []
        for name in self.list_commands(ctx):
            command = self.get_command(ctx, name)
            # The limit is in characters; by default a sentence is cut to fit on one line.
            if command is not None and not command.hidden:
                rows.append((name, command.get_short_help_str(limit=sys.maxsize)))
        with formatter.section("Commands"):
            formatter.write_dl(rows)


app = typer.Typer(
    name="qkv",
    cls=Program,
    help="The glass-box Transformer toolkit: build, train and look inside all three families.",
    epilog="Start with: qkv tour · qkv explain · qkv lemma. Each command has --help with examples.",
    invoke_without_command=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(requested: bool) -> None:
    if requested:
        typer.echo(f"qkv {qkv.__version__}")
        raise typer.Exit


@app.callback()
def _root(
    context: typer.Context,
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


app.command()(tour)
app.command()(explain)
app.command()(worksheet)
app.command()(lemma)
app.command()(train)
app.command()(plan)
app.command()(evaluate)
app.command()(generate)
app.command()(chat)
app.command()(classify)
app.command()(translate)
app.command()(embed)
app.command()(similar)
app.command()(cluster)
app.command()(serve)
app.command()(data)
app.command()(check)
app.command()(inspect)
app.command("import")(import_)
app.command()(export)
app.command()(doctor)


def main() -> NoReturn:
    """Run the command and exit: 0 success, 1 a check failed, 2 wrong input, 130 interrupted."""
    _replace_unprintable_characters()
    # Without this, exiting waits for a garbage collection over everything that was imported.
    atexit.register(gc.freeze)
    try:
        code = app(standalone_mode=False)
    except QkvError as error:
        _fail(spell_flags(str(error), _flags(sys.argv[1:])))
    except ClickException as error:
        _fail(usage_error_message(error, sys.argv[1:]))
    except (KeyboardInterrupt, typer.Abort):
        code = INTERRUPTED
    except (BrokenPipeError, SystemExit) as error:  # typer may exit by itself when a pipe breaks
        if not any(isinstance(e, BrokenPipeError) for e in (error, error.__context__)):
            raise
        _discard_output()  # the reader is gone, as in `qkv explain | head`: not an error
        sys.exit(0)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EIO):
            raise
        _discard_output()
        _fail(f"cannot write the output: {error.strerror}")
    if code == INTERRUPTED:
        print("interrupted", file=sys.stderr)
    if not isinstance(code, int):
        code = 0
    sys.exit(code)


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


def _discard_output() -> None:
    """Send the rest of standard output nowhere, or flushing it at exit would fail again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _replace_unprintable_characters() -> None:
    """Print the nearest ASCII where the encoding of a terminal has no − or √."""
    codecs.register_error("ascii_fallback", _ascii_fallback)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="ascii_fallback")


def _ascii_fallback(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeEncodeError)
    text = error.object[error.start : error.end]
    return "".join(ASCII.get(character, "?") for character in text), error.end


def usage_error_message(error: Any, arguments: Sequence[str]) -> str:
    """One sentence for a usage error of typer: what is wrong, what is expected, an example.

    `arguments` is the command line without `qkv`.
    """
    message = " ".join(error.format_message().split()).rstrip(".")
    context = getattr(error, "ctx", None)
    param = getattr(error, "param", None)
    hint = ""
    if context:
        hint = f" (see: {context.command_path} --help)"
    if message.startswith("Missing") and context:
        return message + _example(context) + hint
    if "unexpected extra argument" in message:
        return f"{message}; a text with spaces needs quotes around it{hint}"
    if param is not None:
        message = _value_message(message, param, arguments) or message
    return message + hint


def _value_message(message: str, param: Any, arguments: Sequence[str]) -> str | None:
    """The sentence for a value that does not fit; None if typer's message is a new one."""
    name = str(param.name)
    if param.param_type_name == "option":
        name = max(param.opts, key=len)
    if match := CHOICES.search(message):
        return unknown(name, match[1], re.findall(r"'([^']*)'", match[2]))
    for pattern, expectation in EXPECTATIONS:
        if match := re.search(pattern, message):
            value = _option_value(param.opts, arguments)
            if value is not None:
                name = f"{name} {value}"
            return f"{name} {match.expand(expectation)}"
    return None


def _option_value(names: Sequence[str], arguments: Sequence[str]) -> str | None:
    """The value of an option, written as two words or with =; the last one counts."""
    value = None
    for index, word in enumerate(arguments):
        name, equals, rest = word.partition("=")
        if name not in names:
            continue
        if equals:
            value = rest
        else:
            value = " ".join(arguments[index + 1 : index + 2])
    return value


def _example(context: Any) -> str:
    """The first example of the command's help."""
    for line in (context.command.help or "").split("\n"):
        if line.strip().startswith("qkv "):
            return f"; as in: {line.strip()}"
    return ""
