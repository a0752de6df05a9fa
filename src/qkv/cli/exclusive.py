"""Options that cannot be given together."""

from collections.abc import Mapping

from qkv.errors import UsageError


def only_one(options: Mapping[str, object]) -> None:
    """Raise a UsageError if more than one of these options was given."""
    given = [name for name, value in options.items() if value]
    if len(given) > 1:
        raise UsageError(f"{' and '.join(given)} exclude each other; give one of them")
