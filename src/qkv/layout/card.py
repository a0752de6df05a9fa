"""The import card: what was made of a public checkpoint, printed and kept with the model."""

from typing import Any

from pydantic import BaseModel, ConfigDict

SHOWN = 5  # names of a list that are printed


class Card(BaseModel):
    """What was mapped and how, what was inferred, and what could not be carried."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    source: str  # the directory's own name
    layout: str
    architecture: str
    tensors: dict[str, int]  # how they were taken over, and how many that way
    tied: list[str] = []
    ignored: list[str] = []
    stored: list[str] = []  # the kinds of number in the file
    options: dict[str, Any] = {}
    tokenizer: str = "none"
    not_carried: list[str] = []
    self_test: float | None = None

    def tested(self, difference: float) -> "Card":
        return self.model_copy(update={"self_test": difference})

    def lines(self) -> list[tuple[str, str]]:
        """What to print: a title and its text."""
        options = [(name.replace("_", " "), said(value)) for name, value in self.options.items()]
        return [*self.origin(), *options, *self.proof()]

    def origin(self) -> list[tuple[str, str]]:
        """Where it comes from, and how its tensors were taken over."""
        mapped = ", ".join(f"{count} {how}" for how, count in self.tensors.items())
        return [
            ("source", f"{self.source} ({self.layout}, {self.architecture})"),
            ("tensors", f"{mapped}; stored as {', '.join(self.stored)}"),
            ("stored twice", _some(self.tied)),
            ("ignored", _some(self.ignored)),
        ]

    def proof(self) -> list[tuple[str, str]]:
        """What is different here, and how well two ways to compute agree."""
        found = [
            ("tokenizer", self.tokenizer),
            ("not carried", "; ".join(self.not_carried) or "nothing was lost"),
        ]
        if self.self_test is not None:
            difference = f"{self.self_test:.1e}"
            found.append(("self-test", f"kernels and padding differ by {difference} at most"))
        return found


def said(value: Any) -> str:
    """A fact as people read it."""
    return f"{value:,}" if isinstance(value, int) else str(value)


def _some(names: list[str]) -> str:
    if not names:
        return "none"
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more
