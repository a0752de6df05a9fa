"""The tour itself: train the three models, ask them, check them, print, and write the page.

A tour is a folder that holds nothing else:

    tour/tour.json      that it is a tour, and of which plan
    tour/sentiment/     a bundle, or a run that is not finished; also language/ and translation/
    tour/results.txt    what the terminal printed, once everything is done
    tour/report.html    the same with pictures

Stopped anywhere, the same call continues to the very same weights.
"""

import json
import shutil
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from pathlib import Path

import torch

import qkv
from qkv.bundle import MANIFEST, recover
from qkv.checks import CheckReport, check
from qkv.errors import UsageError
from qkv.files import atomic_write, read_json, summarize_names, write_error_message
from qkv.tour import terminal
from qkv.tour.results import (
    TourResults,
    TrainedModel,
    cluster_reviews,
    explain_reviews,
    explain_translations,
    sample_text,
)
from qkv.tour.stages import ModelSpec, OnProgress, ProgressUpdate, StageClock, TourPlan
from qkv.tour.tour_page import page
from qkv.training import RECIPE, Evaluation, Event, Run, begin, prepare, reopen

CPU = torch.device("cpu")

MODELS = ("sentiment", "language", "translation")

TOUR_FILE = "tour.json"

RESULTS = "results.txt"

REPORT = "report.html"

Log = Callable[[str], None]


def ignore(_: ProgressUpdate | str) -> None:
    """A listener that does nothing."""


def tour(
    folder: "TourFolder",
    plan: TourPlan,
    on_progress: OnProgress = ignore,
    log: Log = ignore,
    device: torch.device = CPU,
) -> Iterator[str]:
    """Yields the lines of the tour as they are ready; call `folder.begin` first.

    `on_progress` receives every step and may raise KeyboardInterrupt: the same call continues
    later. `log` receives remarks on what an earlier session has done already.
    """
    lines: list[str] = []
    for line in _Guide(folder, plan, on_progress, log, device).lines():
        lines.append(line)
        yield line
    folder.write_results("".join(f"{line}\n" for line in lines))


class _Guide:
    """Goes through the stages and reports the progress of each."""

    def __init__(
        self,
        folder: "TourFolder",
        plan: TourPlan,
        on_progress: OnProgress,
        log: Log,
        device: torch.device,
    ) -> None:
        self.folder = folder
        self.plan = plan
        self.clock = StageClock(plan.stage_seconds(), on_progress)
        self.log = log
        self.device = device

    def lines(self) -> Iterator[str]:
        """The six sections and the ending, in order."""
        plan = self.plan
        yield from terminal.heading(1, "Attention by hand")
        yield from terminal.worked_example()

        sentiment = yield from self._train(2, plan.sentiment)
        reviews = explain_reviews(sentiment)
        yield from terminal.review_lines(reviews)

        language = yield from self._train(3, plan.language)
        sample = sample_text(language, plan.max_tokens)
        yield from terminal.sample_lines(sample)

        translation = yield from self._train(4, plan.translation)
        translations = explain_translations(translation)
        yield from terminal.translation_lines(translations)

        yield from terminal.heading(5, "Similar texts")
        self.clock.start("groups", "clustering similar texts")
        clusters = cluster_reviews(sentiment, plan.max_texts)
        yield from terminal.cluster_lines(clusters)

        yield from terminal.heading(6, "Proofs on all three")
        models = (sentiment, language, translation)
        reports = {}
        for index, trained in enumerate(models):
            name = trained.spec.name
            reports[name] = self._check(index, trained)
            yield terminal.check_line(name, reports[name])

        self.clock.start("page", "writing the page")
        results = TourResults(*models, reviews, sample, translations, clusters, reports)
        self.folder.write_page(page(results))
        yield from terminal.ending(self.folder.path, self.folder.report)

    def _train(self, number: int, spec: ModelSpec) -> Generator[str, None, TrainedModel]:
        """Yields the lines about a model and returns it, trained."""
        yield from terminal.heading(number, spec.title)
        path = self.folder.bundle(spec.name)
        self.clock.start(spec.name, f"training on {spec.corpus}")
        if is_trained(path):
            self.clock.skip_to(1.0)
            self.log(f"{path}: already trained")
        train_model(spec, path, self.device, self._on_event, self.log)
        trained = TrainedModel(spec, path)
        yield from terminal.training_lines(trained)
        return trained

    def _check(self, index: int, trained: TrainedModel) -> CheckReport:
        message = f"proofs on {trained.spec.name}"
        if index == 0:
            self.clock.start("checks", message)
        else:
            self.clock.advance(index / len(MODELS), message)
        return check(trained.model)

    def _on_event(self, run: Run, event: Event) -> None:
        steps = run.recipe.steps
        position = f"step {event.number:,} of {steps:,}"
        if isinstance(event, Evaluation):
            metric = run.data_module.metric.name
            message = f"{position}, validation {metric} {event.value:.3f}"
        else:
            message = f"{position}, loss {event.loss:.3f}"
            if event.number > 1 and self.clock.fraction == 0.0:
                self.clock.skip_to((event.number - 1) / steps)
        self.clock.advance(event.number / steps, message)


def is_trained(path: Path) -> bool:
    recover(path)  # a run that was killed at its very end may have been moved aside
    return (path / MANIFEST).exists()


def train_model(
    spec: ModelSpec,
    path: Path,
    device: torch.device,
    on_event: Callable[[Run, Event], None],
    log: Log = ignore,
) -> None:
    """Train the model of the spec in that folder, unless it is there already.

    `on_event` receives every step and evaluation. It may raise KeyboardInterrupt: the run is saved,
    and the next call continues to the very same weights.
    """
    if is_trained(path):
        return
    if (path / RECIPE).exists():
        run = reopen(path, device)
        run.resume(log)
        log(f"{path}: continuing after step {run.progress.step:,} of {run.recipe.steps:,}")
    else:
        run = Run(prepare(spec.args), path, device)
        begin(run)
    for event in run.events():
        try:
            on_event(run, event)
        except KeyboardInterrupt:
            run.save()
            raise
    run.finish()


@dataclass(frozen=True)
class TourFolder:
    """One tour on disk."""

    path: Path
    plan: str  # its name

    def begin(self, again: bool = False) -> bool:
        """Make the folder ready; returns whether some of this tour is there already.

        again: delete the tour that is there. Files that no tour has written are never touched.
        """
        self._refuse_foreign_files()
        if again:
            self._clear()
        if not (self.path / TOUR_FILE).exists():
            content = json.dumps({"plan": self.plan, "qkv": qkv.__version__})
            self._write(TOUR_FILE, content + "\n")
            return False
        self._refuse_other_plan()
        return any(self.path.joinpath(name).exists() for name in MODELS)

    @property
    def finished(self) -> bool:
        files = [self.path / name for name in (TOUR_FILE, RESULTS, REPORT)]
        files += [self.bundle(name) / MANIFEST for name in MODELS]
        return all(file.is_file() for file in files)

    @property
    def results(self) -> str:
        """What a finished tour printed."""
        return (self.path / RESULTS).read_text("utf-8")

    @property
    def report(self) -> Path:
        return self.path / REPORT

    def bundle(self, name: str) -> Path:
        return self.path / name

    def write_page(self, html: str) -> None:
        self._write(REPORT, html)

    def write_results(self, text: str) -> None:
        """Keep what the terminal printed; with it the tour is finished."""
        self._write(RESULTS, text)

    def _write(self, name: str, content: str) -> None:
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            atomic_write(self.path / name, content.encode("utf-8", "backslashreplace"))
        except OSError as error:
            raise UsageError(write_error_message(self.path / name, error)) from error

    def _refuse_foreign_files(self) -> None:
        if not self.path.exists():
            return
        if not self.path.is_dir():
            raise UsageError(f"{self.path} is a file; name a folder for the tour with -o")
        names = sorted(entry.name for entry in self.path.iterdir() if not _is_leftover(entry.name))
        if names and TOUR_FILE not in names:
            raise UsageError(
                f"{self.path} holds no tour but {summarize_names(names)}; name another folder "
                "with -o"
            )
        foreign = [name for name in names if name not in (*MODELS, TOUR_FILE, RESULTS, REPORT)]
        if foreign:
            raise UsageError(
                f"{self.path} holds {summarize_names(foreign)} besides a tour; move that away, or "
                "name "
                "another folder with -o"
            )

    def _refuse_other_plan(self) -> None:
        fields = read_json(self.path / TOUR_FILE)
        # qkv 0.1 called the plan a pace, and its full tour was the default.
        plan = fields.get("plan", fields.get("pace"))
        if plan == self.plan:
            return
        match plan:
            case "quick" | "full":
                advice = f"pass --{plan} to continue it"
            case _:
                advice = f"leave --{self.plan} out to continue it"
        raise UsageError(
            f"{self.path} holds a {plan} tour, not a {self.plan} one; {advice}, pass --again "
            "to redo it, or name another folder with -o"
        )

    def _clear(self) -> None:
        """Delete all that a tour writes; the tour file last, so the folder is known until then."""
        try:
            for name in (RESULTS, REPORT):
                (self.path / name).unlink(missing_ok=True)
            entries = list(self.path.iterdir()) if self.path.exists() else []
            for entry in entries:
                if entry.is_dir() and (entry.name in MODELS or _is_leftover(entry.name)):
                    shutil.rmtree(entry)
            (self.path / TOUR_FILE).unlink(missing_ok=True)
        except OSError as error:
            raise UsageError(write_error_message(self.path, error)) from error


def _is_leftover(name: str) -> bool:
    """Whether it is what a killed save leaves behind."""
    targets = (*MODELS, TOUR_FILE, RESULTS, REPORT)
    return any(name.startswith((f".{target}.", f".{target}-")) for target in targets)
