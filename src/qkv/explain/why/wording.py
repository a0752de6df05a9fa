"""How numbers and words of an explanation are written for people."""

from qkv.files import one_line


def share(value: float) -> str:
    """A probability or a share: three decimals, and what is smaller is said to be."""
    return f"{value:.3f}" if value >= 0.001 or value == 0 else "<0.001"


def fell(value: float | None, decimals: int = 2) -> str:
    """With its sign, and a true minus."""
    return "" if value is None else f"{value:+.{decimals}f}".replace("-", "−")


def number(value: float) -> str:
    return f"{value:.3f}".replace("-", "−")


def seen(word: str) -> str:
    """On one line, and a space so that it can be seen."""
    return one_line(word) if word.strip() else repr(word)
