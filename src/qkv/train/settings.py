"""Settings laid over a recipe: from a TOML file, and from the command line as a.b=c."""

import tomllib
from collections.abc import Iterable, Mapping
from typing import Any, NoReturn

from qkv.errors import UsageError, unknown
from qkv.model.stack import Stack
from qkv.train.recipe import Recipe

Settings = dict[str, Any]
STACKS = ("encoder", "decoder")
GROUPS = ("data", "tokens", "origin", "task", "model", "optimiser", "schedule")


def read_settings(assignments: Iterable[str]) -> Settings:
    """`["optimiser.rate=0.01", "model.width=256"]` as nested settings."""
    settings: Settings = {}
    for assignment in assignments:
        name, equals, value = assignment.partition("=")
        if not equals or not name:
            raise UsageError(f'"{assignment}" sets nothing; write it as in optimiser.rate=0.01')
        inner = settings
        *path, last = name.strip().split(".")
        for part in path:
            inner = inner.setdefault(part, {})
            if not isinstance(inner, dict):
                raise UsageError(f'"{assignment}" does not fit "{part}={inner}"; leave one out')
        inner[last] = _value(value.strip())
    return settings


def laid_over(base: Mapping[str, Any], settings: Mapping[str, Any]) -> Settings:
    """The base with what is set in its place; another kind replaces the old one whole."""
    merged = dict(base)
    for name, value in settings.items():
        old = merged.get(name)
        if old is not None and isinstance(old, Mapping) != isinstance(value, Mapping):
            _refuse(name, value)
        if not isinstance(value, Mapping) or not isinstance(old, Mapping):
            merged[name] = value
        elif value.get("kind", old.get("kind")) != old.get("kind"):
            merged[name] = dict(value)
        else:
            merged[name] = laid_over(old, value)
    return merged


def in_every_stack(model: Mapping[str, Any], settings: Mapping[str, Any]) -> Settings:
    """What is said of the whole model, such as width and layers, said of each of its stacks.

    What is said last counts: `model.width=256` after a whole recipe is for all of its stacks.
    """
    spread: Settings = {}
    for name, value in settings.items():
        if name in Stack.model_fields and name not in model:
            for stack in STACKS:
                if stack in model:
                    spread[stack] = laid_over(spread.get(stack, {}), {name: value})
        else:
            spread[name] = (
                laid_over(spread.get(name, {}), value) if isinstance(value, dict) else value
            )
    return spread


def check_names(settings: Mapping[str, Any]) -> None:
    """A misspelt section is said before any work is done."""
    for name, value in settings.items():
        if name not in Recipe.model_fields:
            raise UsageError(unknown("setting", name, Recipe.model_fields))
        if (name in GROUPS) != isinstance(value, Mapping):
            _refuse(name, value)


def _refuse(name: str, value: Any) -> NoReturn:
    """One value where there are several settings, or the other way round."""
    if isinstance(value, Mapping):
        raise UsageError(f"{name} is a single setting; there is no {name}.{next(iter(value), '')}")
    raise UsageError(f"{name} is a group of settings; say which, as in {name}.NAME={value}")


def _value(text: str) -> Any:
    """A number, true, false, a list or quoted text as in TOML; anything else is plain text."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text
