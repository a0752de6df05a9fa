"""The import card: what was made of a public checkpoint, printed and kept with the model."""

from dataclasses import asdict, dataclass, field, replace
from typing import Any

SHOWN = 5  # names of a list that are printed


@dataclass(frozen=True)
class Card:
    """What was mapped and how, what was inferred, and what could not be carried."""

    source: str  # the directory's own name
    layout: str
    architecture: str
    tensors: dict[str, int]  # how they were taken over, and how many that way
    tied: list[str] = field(default_factory=list)
    ignored: list[str] = field(default_factory=list)
    stored: list[str] = field(default_factory=list)  # the kinds of number in the file
    options: dict[str, Any] = field(default_factory=dict)
    tokenizer: str = "none"
    not_carried: list[str] = field(default_factory=list)
    self_test: float | None = None

    def tested(self, difference: float) -> "Card":
        return replace(self, self_test=difference)

    def fields(self) -> dict[str, Any]:
        return asdict(self)

    def lines(self) -> list[tuple[str, str]]:
        """What to print: a title and its text."""
        options = [(name.replace("_", " "), str(value)) for name, value in self.options.items()]
        return [*self.origin(), *options, *self.proof()]

    def origin(self) -> list[tuple[str, str]]:
        """Where it comes from, and how its tensors were taken over."""
        mapped = ", ".join(f"{count} {how}" for how, count in self.tensors.items())
        return [
            ("source", f"{self.source} ({self.layout}, {self.architecture})"),
            ("tensors", f"{mapped}; stored as {', '.join(self.stored)}"),
            ("tied", _some(self.tied)),
            ("ignored", _some(self.ignored)),
        ]

    def proof(self) -> list[tuple[str, str]]:
        """What is different here, and how well two ways to compute agree."""
        found = [
            ("tokenizer", self.tokenizer),
            ("not carried", "; ".join(self.not_carried) or "nothing was lost"),
        ]
        if self.self_test is not None:
            found.append(
                ("self-test", f"kernels and padding differ by {self.self_test:.1e} at most")
            )
        return found


def _some(names: list[str]) -> str:
    if not names:
        return "none"
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more
