"""The sentence that says how far to trust a ranking, in plain words and with its numbers."""

from dataclasses import dataclass

SURE = 0.95  # more of the random choices than that must move the answer less
ENOUGH = 100  # different choices; with fewer even the best is among the random ones too often


@dataclass(frozen=True)
class Trust:
    """better: True, False, or None if there are too few words to tell."""

    better: bool | None
    said: str

    @classmethod
    def of(cls, facts: str, beaten: float, ways: int, least: int, most: int) -> "Trust":
        """From a sentence of facts and the share of random choices that move the answer less.

        ways: how many choices there are. least, most: how many words were deleted.
        """
        if ways < ENOUGH:
            return cls(None, f"{facts}: too few words to tell it from chance")
        over = f"over {least} to {most} words " if most > least else ""
        share = f"{over}{beaten:.0%} of random choices do worse"
        if beaten > SURE:
            return cls(True, f"{facts}: better than chance ({share})")
        how = "not clearly" if beaten > 0.5 else "no"
        return cls(False, f"{facts}: {how} better than chance ({share}), so do not rely on it")


def fall(answer: str, words: int, moved: float, random: float, spread: float) -> str:
    """How far the answer falls without the words named, and without as many random ones."""
    named = "the word named" if words == 1 else f"the {words} words named"
    drawn = "a random one" if words == 1 else f"{words} random ones"
    return (
        f"deleting {named} lowers {answer} by {figure(moved)}; {drawn} by {figure(random)} ± "
        f"{figure(spread)}"
    )


def figure(value: float) -> str:
    """Two decimals, or one figure of what is smaller; a true minus sign."""
    if abs(value) < 1e-9:
        return "0.00"
    shown = f"{value:.2f}" if abs(value) >= 0.01 else f"{value:.1g}"
    return shown.replace("-", "−")
