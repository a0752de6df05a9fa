"""The tour itself: train what is not there yet, ask, prove, tell, and write the page."""

import json
import shutil
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from pathlib import Path

import torch

import qkv
from qkv.bundle.manifest import MANIFEST, recover
from qkv.checks import CheckReport, check
from qkv.errors import UsageError
from qkv.files import listed, read_json, replace_file, unwritten
from qkv.tour import results as looks
from qkv.tour import terminal as answers
from qkv.tour import terminal as text
from qkv.tour.pace import Clock, Moment, Pace, Part, Tell
from qkv.tour.results import Outcome, Told
from qkv.tour.tour_page import page
from qkv.training.plan import prepare
from qkv.training.run import RECIPE, Evaluation, Event, Run, begin, reopen

# FOLDED tour/folder: The folder of a tour: three bundles, a page, and what was told; nothing of
#   anybody else's.
#
#   tour/tour.json      that it is a tour, and at which pace
#   tour/sentiment/     a bundle, or a run that is not finished; also language/ and
#   translation/
#   tour/results.txt    what the terminal was told, once all is done
#   tour/report.html    the same with pictures
# FOLDED tour/training: One model of the tour trained in its folder: begun, gone on with, or
#   found finished.

PARTS = ("sentiment", "language", "translation")

MARK, RESULTS, REPORT = "tour.json", "results.txt", "report.html"


@dataclass(frozen=True)
class Folder:
    """One tour on disk."""

    path: Path
    pace: str

    def begin(self, again: bool = False) -> bool:
        """Make it ready, and say whether something of this tour is there already.

        again: throw away the tour that is there. What no tour has written is never touched.
        """
        self._refuse_others()
        if again:
            self._clear()
        there = (self.path / MARK).exists()
        if there:
            self._refuse_other_pace()
        else:
            self._write(MARK, json.dumps({"pace": self.pace, "qkv": qkv.__version__}) + "\n")
        return there and any(self.path.joinpath(name).exists() for name in PARTS)

    @property
    def finished(self) -> bool:
        """Whether there is nothing left to do."""
        told = all((self.path / name).is_file() for name in (MARK, RESULTS, REPORT))
        return told and all((self.bundle(name) / MANIFEST).is_file() for name in PARTS)

    @property
    def results(self) -> str:
        """What a finished tour told."""
        return (self.path / RESULTS).read_text("utf-8")

    @property
    def report(self) -> Path:
        return self.path / REPORT

    def bundle(self, part: str) -> Path:
        return self.path / part

    def keep_page(self, page: str) -> None:
        self._write(REPORT, page)

    def keep_results(self, told: str) -> None:
        """What the terminal was told; with it the tour is finished."""
        self._write(RESULTS, told)

    def _write(self, name: str, content: str) -> None:
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            replace_file(self.path / name, content.encode("utf-8", "backslashreplace"))
        except OSError as error:
            raise UsageError(unwritten(self.path / name, error)) from error

    def _refuse_others(self) -> None:
        if not self.path.exists():
            return
        if not self.path.is_dir():
            raise UsageError(f"{self.path} is a file; name a folder for the tour with -o")
        found = sorted(entry.name for entry in self.path.iterdir() if not _left_over(entry.name))
        if found and MARK not in found:
            raise UsageError(
                f"{self.path} holds no tour but {listed(found)}; name another folder with -o"
            )
        strange = [name for name in found if name not in (*PARTS, MARK, RESULTS, REPORT)]
        if strange:
            raise UsageError(
                f"{self.path} holds {listed(strange)} besides a tour; move that away, or name "
                "another folder with -o"
            )

    def _refuse_other_pace(self) -> None:
        found = read_json(self.path / MARK).get("pace")
        if found != self.pace:
            same = "pass --quick to go on with it" if found == "quick" else "leave --quick out"
            raise UsageError(
                f"{self.path} holds a {found} tour, not a {self.pace} one; {same}, pass --again "
                "to redo it, or name another folder with -o"
            )

    def _clear(self) -> None:
        """All that a tour writes; the mark goes last, so that the folder stays known until then."""
        try:
            for name in (RESULTS, REPORT):
                (self.path / name).unlink(missing_ok=True)
            for entry in list(self.path.iterdir()) if self.path.exists() else []:
                if entry.is_dir() and (entry.name in PARTS or _left_over(entry.name)):
                    shutil.rmtree(entry)
            (self.path / MARK).unlink(missing_ok=True)
        except OSError as error:
            raise UsageError(unwritten(self.path, error)) from error


def _left_over(name: str) -> bool:
    """Whether it is what a killed save leaves behind."""
    whole = (*PARTS, MARK, RESULTS, REPORT)
    return any(name.startswith((f".{each}.", f".{each}-")) for each in whole)


Follow = Callable[[Run, Event], None]


def is_finished(place: Path) -> bool:
    recover(place)  # a run that was killed at its very end may have been moved aside
    return (place / MANIFEST).exists()


def train(
    part: Part,
    place: Path,
    device: torch.device,
    follow: Follow,
    say: Callable[[str], None] = lambda line: None,
) -> None:
    """The folder becomes a bundle; if it is one already, nothing happens.

    `follow` is told every step and evaluation. It may raise KeyboardInterrupt: the run is saved,
    and the next call goes on from there to the very same weights.
    """
    if is_finished(place):
        return
    begun = (place / RECIPE).exists()
    run = _gone_on(place, device, say) if begun else _begun(part, place, device)
    for event in run.events():
        try:
            follow(run, event)
        except KeyboardInterrupt:
            run.save()
            raise
    run.finish()


def _begun(part: Part, place: Path, device: torch.device) -> Run:
    run = Run(prepare(part.args), place, device)
    begin(run)
    return run


def _gone_on(place: Path, device: torch.device, say: Callable[[str], None]) -> Run:
    run = reopen(place, device)
    run.resume(say)
    say(f"{place}: going on after step {run.progress.step:,} of {run.recipe.steps:,}")
    return run


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

    def report(self, number: int, outcome: Outcome) -> CheckReport:
        """What must hold for every model, tried on this one."""
        if number == 0:
            self.clock.begin("checks", f"proofs on {outcome.part.name}")
        else:
            self.clock.at(number / 3, f"proofs on {outcome.part.name}")
        return check(outcome.box)

    def _follow(self, run: Run, event: Event) -> None:
        steps = run.recipe.steps
        if isinstance(event, Evaluation):
            name = run.data_module.metric.name
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
