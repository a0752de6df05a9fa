"""Library errors name Python arguments; on the command line they are spelled as flags.

top_k=0 must be an integer of 1 or more    ->    --top-k 0 must be an integer of 1 or more
"""

import re
from collections.abc import Callable, Mapping
from inspect import signature
from typing import get_args

from typer.models import OptionInfo

ARGUMENT = re.compile(r'\b(?P<name>[a-z][a-z_0-9]*)=(?:"(?P<text>[^"]*)"|(?P<value>[^\s,;:()"]+))')


def flags_of(command: Callable[..., object]) -> dict[str, str]:
    """The flag of each option of a command, by the name of the Python argument."""
    flags: dict[str, str] = {}
    for name, parameter in signature(command, eval_str=True).parameters.items():
        for option in get_args(parameter.annotation):
            if isinstance(option, OptionInfo):
                argument = name.rstrip("_")
                spellings = [flag for flag in option.param_decls or () if flag.startswith("--")]
                flags[argument] = spellings[0] if spellings else "--" + argument.replace("_", "-")
    return flags


def spell_flags(message: str, flags: Mapping[str, str]) -> str:
    """The message with every `name=value` whose name is one of these flags as `--name value`."""

    def spell(match: re.Match[str]) -> str:
        flag = flags.get(match["name"])
        if flag is None:
            return match[0]
        if match["value"] == "True":
            return flag
        return f"{flag} {match['value'] or match['text']}"

    return ARGUMENT.sub(spell, message)
