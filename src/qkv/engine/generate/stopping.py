"""Where a text ends because it was about to say something agreed upon."""

from collections.abc import Sequence

from qkv.errors import UsageError


class StopTexts:
    """Lets text through up to the first stop text, and never the beginning of one too early."""

    def __init__(self, stops: Sequence[str]) -> None:
        check_stops(stops)
        self._stops = tuple(stops)
        self._longest = max(map(len, self._stops), default=0)
        self._held = ""

    def push(self, piece: str) -> tuple[str, bool]:
        """The text that may be shown now, and whether a stop text was reached behind it."""
        if not self._stops or not piece:
            return piece, False
        text = self._held + piece
        places = [place for stop in self._stops if (place := text.find(stop)) >= 0]
        if places:
            self._held = ""
            return text[: min(places)], True
        held = self._beginning(text)
        self._held = text[len(text) - held :]
        return text[: len(text) - held], False

    def finish(self) -> str:
        """What was held back: it did not become a stop text."""
        held, self._held = self._held, ""
        return held

    def _beginning(self, text: str) -> int:
        """How many of the last characters could be the beginning of a stop text."""
        for count in range(min(self._longest - 1, len(text)), 0, -1):
            end = text[len(text) - count :]
            if any(stop.startswith(end) for stop in self._stops):
                return count
        return 0


def check_stops(stops: Sequence[str]) -> None:
    if isinstance(stops, str):
        raise UsageError(f'stop takes a list of texts, such as ["{stops[:20]}"], not one text')
    if "" in stops:
        raise UsageError("a stop text is empty, so nothing could ever be written; leave it out")
