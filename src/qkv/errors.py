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
    └── UsageError        a command line that asks for something impossible

Each message is one sentence: what was given, what was expected, what to do. The command line
prints it on one line and exits 2; any other exception is a bug and keeps its traceback.
"""

from collections.abc import Iterable
from difflib import SequenceMatcher, get_close_matches


class QkvError(Exception):
    """Something the user can put right; the message says how."""


class ShapeError(QkvError):
    """Sizes that do not fit together."""


class MaskError(QkvError):
    """A mask that does not fit its queries and keys."""


class CacheError(QkvError):
    """A key/value cache asked for more than it holds."""


class ConfigError(QkvError):
    """A model description that cannot be built."""


class BundleError(QkvError):
    """A model directory that cannot be read or written."""


class DataError(QkvError):
    """Text, labels or pairs that cannot be used; the message names file and line."""


class TrainingError(QkvError):
    """A training run that cannot start, go on or be resumed."""


class WorksheetError(QkvError):
    """A worksheet that cannot be computed."""


class UsageError(QkvError):
    """Command-line arguments that cannot be carried out."""


def unknown(kind: str, given: str, known: Iterable[str]) -> str:
    """The sentence for a name that does not exist: the nearest ones, or all of them."""
    names = list(known)
    near = get_close_matches(given, names, n=3)
    best = [name for name in names if near and _like(given, name) == _like(given, near[0])]
    if best:
        meant = " or ".join(f'"{name}"' for name in best)
        return f'unknown {kind} "{given}"; did you mean {meant}?'
    return f'unknown {kind} "{given}"; known: {", ".join(names)}'


def _like(a: str, b: str) -> float:
    return SequenceMatcher(None, b, a).ratio()
