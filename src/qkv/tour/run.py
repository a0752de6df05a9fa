"""The tour itself: train what is not there yet, ask, prove, tell, and write the page."""

from collections.abc import Callable, Generator, Iterator

import torch

from qkv.check import Report, check
from qkv.tour import answers, looks, text
from qkv.tour.clock import Clock, Moment, Tell
from qkv.tour.folder import Folder
from qkv.tour.outcome import Outcome
from qkv.tour.pace import Pace, Part
from qkv.tour.page import page
from qkv.tour.told import Told
from qkv.tour.training import is_finished, train
from qkv.train.run import Evaluated, Event, Run

CPU = torch.device("cpu")
Say = Callable[[str], None]


def silent(_: Moment | str) -> None:
    """Nobody watches."""


def tour(
    folder: Folder, pace: Pace, tell: Tell = silent, say: Say = silent, device: torch.device = CPU
) -> Iterator[str]:
    """The lines of the tour as they are ready; the folder is begun already.

    `tell` hears how far it is, and may raise KeyboardInterrupt between two steps: the same call
    goes on later. `say` hears what was found already done.
    """
    kept: list[str] = []
    for line in _lines(_Guide(folder, pace, Clock(_stages(pace), tell), say, device)):
        kept.append(line)
        yield line
    folder.keep_results("".join(f"{line}\n" for line in kept))


def _lines(guide: "_Guide") -> Iterator[str]:
    pace, folder = guide.pace, guide.folder
    yield from text.heading(1, "Attention by hand")
    yield from text.example()
    sentiment = yield from guide.outcome(2, pace.sentiment)
    judgements = looks.judgements(sentiment)
    yield from answers.judged(judgements)
    language = yield from guide.outcome(3, pace.language)
    paragraph = looks.paragraph(language, pace.tokens)
    yield from answers.written(paragraph)
    translation = yield from guide.outcome(4, pace.translation)
    renderings = looks.renderings(translation)
    yield from answers.rendered(renderings)
    yield from text.heading(5, "Similar texts")
    guide.clock.begin("groups", "finding groups of similar texts")
    groups = looks.groups(sentiment, pace.texts)
    yield from text.grouped(groups)
    yield from text.heading(6, "Proofs on all three")
    outcomes = (sentiment, language, translation)
    reports = {}
    for number, each in enumerate(outcomes):
        reports[each.part.name] = guide.report(number, each)
        yield text.proved(each.part.name, reports[each.part.name])
    guide.clock.begin("page", "writing the page")
    folder.keep_page(page(Told(*outcomes, judgements, paragraph, renderings, groups, reports)))
    yield from text.ending(folder.path, folder.report)


class _Guide:
    """Leads through the stages: each is told when it begins and how far it is."""

    def __init__(
        self, folder: Folder, pace: Pace, clock: Clock, say: Say, device: torch.device
    ) -> None:
        self.folder, self.pace, self.clock = folder, pace, clock
        self.say, self.device = say, device

    def outcome(self, number: int, part: Part) -> Generator[str, None, Outcome]:
        """The lines on a part, whose outcome is what the generator returns."""
        yield from text.heading(number, part.title)
        place = self.folder.bundle(part.name)
        self.clock.begin(part.name, f"learning from {part.learns}")
        if is_finished(place):
            self.clock.had(1.0)
            self.say(f"{place}: trained already")
        train(part, place, self.device, self._follow, self.say)
        found = Outcome(part, place)
        yield from text.trained(found)
        return found

    def report(self, number: int, outcome: Outcome) -> Report:
        """What must hold for every model, tried on this one."""
        if number == 0:
            self.clock.begin("checks", f"proofs on {outcome.part.name}")
        else:
            self.clock.at(number / 3, f"proofs on {outcome.part.name}")
        return check(outcome.box)

    def _follow(self, run: Run, event: Event) -> None:
        steps = run.recipe.steps
        if isinstance(event, Evaluated):
            name = run.lesson.metric.name
            said = f"step {event.number:,} of {steps:,}, held-out {name} {event.value:.3f}"
        else:
            said = f"step {event.number:,} of {steps:,}, loss {event.loss:.3f}"
            if event.number > 1 and self.clock.share == 0.0:
                self.clock.had((event.number - 1) / steps)
        self.clock.at(event.number / steps, said)


def _stages(pace: Pace) -> dict[str, float]:
    """About what each takes on two quiet cores, in seconds."""
    shares = {"groups": 0.2, "checks": 0.4, "page": 0.4}
    trained = {part.name: part.seconds for part in pace.parts}
    return trained | {name: share * pace.seconds for name, share in shares.items()}
