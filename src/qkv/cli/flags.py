"""Library errors name Python arguments; on the command line they are spelled as flags.

top_k=0 must be an integer of 1 or more    ->    --top-k 0 must be an integer of 1 or more
"""

import re
from collections.abc import Callable, Mapping
from inspect import signature
from typing import get_args

from typer.models import OptionInfo

# name=value, name="text" or name='text'; a value without quotes ends before punctuation.
ARGUMENT = re.compile(
    r"""\b(?P<name>[a-z][a-z_0-9]*)=(?:(?P<quote>["'])(?P<text>.*?)(?P=quote)|(?P<value>[^\s,;:()"']+))"""
)


def flags_of(command: Callable[..., object]) -> dict[str, str]:
    """The flag of each option of a command, by the name of the Python argument."""
    flags: dict[str, str] = {}
    for name, parameter in signature(command, eval_str=True).parameters.items():
        for annotation in get_args(parameter.annotation):
            if isinstance(annotation, OptionInfo):
                argument = name.rstrip("_")
                flags[argument] = _flag(argument, annotation)
    return flags


def _flag(argument: str, option: OptionInfo) -> str:
    """The long spelling if the option has one, else its short one, else made of its name."""
    spellings = list(option.param_decls or ())
    # In Annotated[..., Option("-k")] the first spelling takes the position of the default.
    if isinstance(option.default, str) and option.default.startswith("-"):
        spellings.insert(0, option.default)
    for spelling in spellings:
        if spelling.startswith("--"):
            return spelling
    if spellings:
        return spellings[0]
    return "--" + argument.replace("_", "-")


def spell_flags(message: str, flags: Mapping[str, str]) -> str:
    """The message with each `name=value` that is an option of the command as `--name value`.

    `name=True` is the flag alone.
    """

    def spell(match: re.Match[str]) -> str:
        flag = flags.get(match["name"])
        if flag is None:
            return match[0]
        if match["value"] == "True":
            return flag
        return f"{flag} {match['value'] or match['text']}"

    return ARGUMENT.sub(spell, message)
