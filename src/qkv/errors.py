"""Every mistake a user can make, as one tree of exceptions.

    QkvError
    ├── ShapeError        tensors or matrices whose sizes do not fit together
    ├── MaskError         a mask that cannot be applied to these queries and keys
    ├── CacheError        a key/value cache used beyond what it holds
    ├── ConfigError       a model that cannot be built, or a preset that does not exist
    ├── BundleError       a model directory that is missing, damaged or in the way
    ├── DataError         a file of text, labels or pairs that cannot be used
    ├── TrainingError     a training run that cannot start, go on or be resumed
    ├── WorksheetError    a worksheet that cannot be computed
    └── UsageError        an argument or option that asks for something impossible
        └── ArgumentError a keyword argument that does not exist (a TypeError, too)

Each message is one sentence: what was given, what was expected, what to do. The command line
prints it on one line and exits 2; any other exception is a bug and keeps its traceback.
"""

from collections.abc import Callable, Iterable
from difflib import SequenceMatcher, get_close_matches
from functools import wraps
from typing import ParamSpec, TypeVar

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


class QkvError(Exception):
    """A mistake the user can fix; the message says how."""


class ShapeError(QkvError):
    """Sizes that do not fit together."""


class MaskError(QkvError):
    """A mask that does not fit its queries and keys."""


class CacheError(QkvError):
    """A key/value cache used beyond its capacity."""


class ConfigError(QkvError):
    """A model config that cannot be built."""


class BundleError(QkvError):
    """A model directory that cannot be read or written."""


class NotFiniteError(QkvError):
    """Logits or vectors that are NaN or infinite: damaged weights, or numbers out of range."""


class DataError(QkvError):
    """Text, labels or pairs that cannot be used; the message names file and line."""


class TrainingError(QkvError):
    """A training run that cannot start, continue or be resumed."""


class WorksheetError(QkvError):
    """A worksheet that cannot be computed."""


class UsageError(QkvError):
    """Arguments or command-line options that cannot be carried out."""


class ArgumentError(UsageError, TypeError):
    """A keyword argument that the function does not have."""


def suggest_arguments(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """The same function; an unknown keyword argument is an `ArgumentError` with a suggestion.

    Python itself suggests the nearest name only from version 3.13 on.
    """
    names = _keyword_names(function)

    @wraps(function)
    def call(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        for name in kwargs:
            if name not in names:
                raise ArgumentError(unknown(f"{function.__name__}() argument", name, names))
        return function(*args, **kwargs)

    return call


def unknown(kind: str, name: str, known: Iterable[str]) -> str:
    """The error message for a name that does not exist: the nearest names, or all of them."""
    names = list(known)
    near = get_close_matches(name, names, n=3)
    if not near:
        return f'unknown {kind} "{name}"; known: {", ".join(names)}'
    best = _similarity(name, near[0])
    suggestions = [f'"{each}"' for each in names if _similarity(name, each) == best]
    return f'unknown {kind} "{name}"; did you mean {" or ".join(suggestions)}?'


def _similarity(a: str, b: str) -> float:
    return SequenceMatcher(None, b, a).ratio()


def _keyword_names(function: Callable[..., object]) -> list[str]:
    """The keywords a function takes, those of a `**options: Unpack[…]` included."""
    from inspect import Parameter, signature  # slow to import, and only engines need it

    names: list[str] = []
    for parameter in signature(function).parameters.values():
        if parameter.kind is Parameter.VAR_KEYWORD:
            (options,) = parameter.annotation.__args__
            names += options.__annotations__
        elif parameter.name != "self":
            names.append(parameter.name)
    return names
