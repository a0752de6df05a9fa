"""How something found in a stranger's file is quoted in a message."""

LONGEST = 80


def shown(found: object) -> str:
    """The value as Python writes it, on one line and no longer than a line."""
    if isinstance(found, str):
        found = found[: LONGEST + 1]  # repr would first make a copy of all of it
    text = repr(found)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"


def listed(names: list[str]) -> str:
    """The first three names, and how many more there are."""
    rest = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(shown(name) for name in names[:3]) + rest
