"""Everything a tour found out, for the page."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from qkv.check import Report
from qkv.tour.looks import Groups, Judgement, Rendering
from qkv.tour.outcome import Outcome


@dataclass(frozen=True)
class Told:
    """The three models, what they said, and what was proved of each by its name."""

    sentiment: Outcome
    language: Outcome
    translation: Outcome
    judgements: Sequence[Judgement]
    paragraph: str
    renderings: Sequence[Rendering]
    groups: Groups
    reports: Mapping[str, Report]

    @property
    def outcomes(self) -> tuple[Outcome, Outcome, Outcome]:
        return self.sentiment, self.language, self.translation
