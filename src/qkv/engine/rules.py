"""What a search may write, and how it compares what it has written."""

from dataclasses import dataclass

from qkv.errors import UsageError

HIGHEST = 10  # powers of a length beyond this say nothing more, and overflow


@dataclass(frozen=True)
class Rules:
    """The same for every source of a search."""

    start: int
    end: int
    forbidden: tuple[int, ...]
    beams: int
    best: int
    length_penalty: float
    before: tuple[int, ...] = ()

    def check(self, vocabulary: int) -> None:
        """Raise a UsageError if no search can go by these rules."""
        if self.beams < 1:
            raise UsageError(f"beams={self.beams}: a search follows 1 or more")
        if not 1 <= self.best <= self.beams:
            raise UsageError(
                f"best={self.best} of beams={self.beams}: ask for 1 to {self.beams} targets, "
                f"or for more beams"
            )
        if not 0.0 <= self.length_penalty <= HIGHEST:
            raise UsageError(
                f"length_penalty={self.length_penalty} must be 0 (compare sums), "
                f"1 (compare means) or any number up to {HIGHEST}"
            )
        for name in ("start", "end"):
            self._expect_token(name, getattr(self, name), vocabulary)
        for name in ("forbidden", "before"):
            for token in getattr(self, name):
                self._expect_token(name, token, vocabulary)
        if self.end in self.forbidden:
            raise UsageError(f"end={self.end} is forbidden, so no target could end; allow it")

    def _expect_token(self, name: str, token: int, vocabulary: int) -> None:
        if not 0 <= token < vocabulary:
            raise UsageError(
                f"{name}={token} is not a token; the model's targets have 0 to {vocabulary - 1}"
            )
