"""A command line that cannot be understood: what was typed, what is expected, an example.

typer, and the click inside it, word this differently from version to version; what is known of
their sentences is said better here, and anything else is passed on as it is.
"""

import re
from collections.abc import Sequence
from typing import Any

from qkv.errors import unknown

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
    context, param = getattr(error, "ctx", None), getattr(error, "param", None)
    hint = f" (see: {context.command_path} --help)" if context else ""
    if said.startswith("Missing") and context:
        return said + _example(context) + hint
    if "unexpected extra argument" in said:
        return f"{said}; a text with spaces needs quotes around it{hint}"
    if param is None:
        return said + hint
    return (_value(said, param, typed) or said) + hint


def _value(said: str, param: Any, typed: Sequence[str]) -> str | None:
    """The sentence for a value that does not fit; None if it is not one of those known."""
    name = max(param.opts, key=len) if param.param_type_name == "option" else str(param.name)
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
            value = rest if equals else " ".join(typed[place + 1 : place + 2])
    return value


def _example(context: Any) -> str:
    """The first example of the command's help."""
    lines = (context.command.help or "").split("\n")
    examples = [line.strip() for line in lines if line.strip().startswith("qkv ")]
    return f"; as in: {examples[0]}" if examples else ""
