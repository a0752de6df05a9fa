"""The tour from an empty folder to its page, with models that are over in a update."""

import re
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from rich.cells import cell_len
from tests.tour.tiny_tours import STEPS, Stops, tiny_plan, weights, whole

from qkv.tour.results import TrainedModel, explain_reviews, explain_translations
from qkv.tour.stages import PLANS, TourPlan
from qkv.tour.terminal import commands_for_models, commands_for_own_files
from qkv.tour.tour import MODELS, TourFolder, train_model
from qkv.training.run import Event, Run

CPU = torch.device("cpu")
Ran = Callable[..., tuple[int, str, str]]
Done = tuple[TourFolder, list[str], Stops]  # a tour, the lines it printed, what it reported


class Heard:
    """Follows a training: the run, and the number of every step and evaluation."""

    def __init__(self) -> None:
        self.run: Run | None = None
        self.numbers: list[int] = []

    def __call__(self, run: Run, event: Event) -> None:
        self.run = run
        self.numbers.append(event.number)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> TourPlan:
    return tiny_plan(tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory, tiny: TourPlan) -> Done:
    """A whole tour, what it told, and what was heard of it."""
    folder, watch = TourFolder(tmp_path_factory.mktemp("done") / "tour", tiny.name), Stops()
    return folder, whole(folder, tiny, watch), watch


def test_the_tour_tells_everything_in_order(done: Done) -> None:
    folder, lines, _ = done
    text = "\n".join(lines)
    parts = [
        "1. Attention by hand", "0.3564", "2. Encoder:", "because of", "3. Decoder:", "│ ",
        "4. Encoder–decoder:", " ← ", "5. Similar texts", "6. Proofs on all three", "checks hold",
        "Next", str(folder.report), "qkv classify", "With a file of your own", "qkv train classify",
    ]  # fmt: skip
    places = [text.index(spec) for spec in parts]
    assert places == sorted(places)
    assert folder.results == f"{text}\n"


def test_every_score_stands_beside_its_baseline(done: Done, tiny: TourPlan) -> None:
    folder, lines, _ = done
    flat = " ".join(" ".join(lines).split())
    for spec in tiny.models:
        trained = TrainedModel(spec, folder.bundle(spec.name))
        figures = (trained.format_score(trained.score), trained.format_score(trained.baseline))
        assert f"{figures[0]} {spec.metric_words}; {spec.baseline}: {figures[1]}" in flat
        assert f"trained for {STEPS} steps" in trained.training_sentence


def test_all_checks_hold_on_all_three(done: Done) -> None:
    proofs = [line for line in done[1] if line.endswith("checks hold")]
    assert [line.split()[0] for line in proofs] == list(MODELS)
    for line in proofs:
        held, of = re.findall(r"\d+", line)
        assert held == of
        assert int(of) > 9


def test_the_terminal_needs_eighty_columns_but_for_commands_to_copy(
    done: Done,
) -> None:
    folder, lines, _ = done
    wide = [line for spec in lines for line in spec.split("\n") if cell_len(line) > 80]
    assert [line for line in wide if str(folder.path.parent) not in line] == []
    here = [
        command for command, _ in (*commands_for_models(Path("tour")), *commands_for_own_files())
    ]
    assert max(map(len, here)) + 2 <= 80


def test_the_page_is_one_file_that_asks_for_nothing(
    done: Done,
) -> None:
    page = done[0].report.read_text("utf-8")
    assert "<script" not in page
    assert "default-src 'none'" in page
    addresses = set(re.findall(r"https?://[^\s\"'<>)]+", page))
    assert {address.split("/")[2] for address in addresses} <= {"www.w3.org"}  # names, not links
    for reference in re.findall(r"(?:href|src|url)\s*[=(]\s*[\"']?([^\"')]*)", page):
        assert reference.startswith("#")
    ids = re.findall(r"\bid=\"([^\"]+)\"", page)
    used = re.findall(r"(?:href=\"#|url\(#)([^\")]+)", page)
    assert set(used) <= set(ids)


def test_the_page_has_the_pictures(done: Done) -> None:
    page = done[0].report.read_text("utf-8")
    for name in MODELS:
        assert f'id="{name}-course"' in page  # the learning curves
    for words in ("Encoder attention", "Decoder attention", "Cross attention"):
        assert f"{words}, a square for each head" in page
    assert "layer 0, head 1" in page
    assert '<span class="bar"' in page
    assert 'class="matrix looks"' in page
    assert 'id="map"' in page
    assert page.count("<svg") == 3 + 1 + 1 + 3 + 1  # curves; heads of each family; the map


@pytest.mark.slow
def test_every_command_it_names_for_its_models_runs(
    done: Done,
    qkv: Ran,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    for command, _ in commands_for_models(done[0].path):
        code, out, err = qkv(*shlex.split(command)[1:])
        assert code == 0, (command, err)
        assert out or Path(command.split(" -o ")[1]).is_file()


@pytest.mark.slow
def test_a_tour_that_is_stopped_goes_on_to_the_very_same_weights(
    done: Done, tiny: TourPlan, tmp_path: Path
) -> None:
    """Inside a spec, between two, after an evaluation, and when all is trained."""
    folder, heard = TourFolder(tmp_path / "tour", tiny.name), list[tuple[str, int]]()
    for until in (
        "sentiment: step 2 of", "language: training", "language: step 5 of",
        "translation: step 6 of", "checks: ",
    ):  # fmt: skip
        watch = Stops(until)
        with pytest.raises(KeyboardInterrupt):
            whole(folder, tiny, watch)
        heard += watch.steps
        assert not folder.finished
    watch = Stops()
    lines = whole(folder, tiny, watch)
    assert folder.finished
    assert heard + watch.steps == done[2].steps  # each of them once
    for spec in tiny.models:
        assert weights(folder, spec) == weights(done[0], spec)
    assert [line.split()[0] for line in lines if "checks hold" in line] == list(MODELS)


def test_a_model_whose_training_is_killed_comes_out_the_same(
    done: Done, tiny: TourPlan, tmp_path: Path
) -> None:
    """Nothing is saved on the spot: it goes on from the last evaluation, or from the start."""

    class Killed(BaseException):
        pass

    folder = TourFolder(tmp_path, tiny.name)
    for spec in tiny.models:
        for last in (2, 5):

            def kill(run: Run, event: Event, last: int = last) -> None:
                if event.number == last:
                    raise Killed

            with pytest.raises(Killed):
                train_model(spec, folder.bundle(spec.name), CPU, kill)
        heard = Heard()
        train_model(spec, folder.bundle(spec.name), CPU, heard)
        assert heard.numbers == [4, 5, 6, 6]  # after the evaluation at 3
        assert weights(folder, spec) == weights(done[0], spec)


def test_what_the_parts_say_of_their_scores_is_so(tiny: TourPlan, tmp_path: Path) -> None:
    for spec in tiny.models:
        heard = Heard()
        train_model(spec, tmp_path / spec.name, CPU, heard)
        assert heard.run is not None
        run = heard.run
        judged = run.data_module.evaluate(run.model)
        assert judged.baseline_name in spec.baseline
        assert {spec.metric} <= set(judged.scores) & set(judged.baseline)
        assert run.data_module.metric.name == spec.selection_metric
        assert run.data_module.metric.higher_is_better == spec.higher_is_better
        train_model(spec, tmp_path / spec.name, CPU, again := Heard())
        assert again.run is None  # it was there already


def test_every_plan_trains_the_three_families() -> None:
    for plan in PLANS.values():
        assert [spec.name for spec in plan.models] == list(MODELS)
        assert [spec.args.job for spec in plan.models] == ["classify", "language", "translate"]


def test_words_that_do_no_better_than_chance_are_marked_and_counted(
    done: Done, tiny: TourPlan
) -> None:
    folder, lines, _ = done
    flat = " ".join(" ".join(lines).split())
    sentiment = TrainedModel(tiny.sentiment, folder.bundle("sentiment"))
    translation = TrainedModel(tiny.translation, folder.bundle("translation"))
    for found, of in (
        (explain_reviews(sentiment), "reviews, deleting"),
        (explain_translations(translation), "sentences, hiding"),
    ):
        sure = [each.faithful for each in found]
        assert f"For {sum(sure)} of {len(sure)} {of} the words named" in flat
    doubts = [
        not each.faithful
        for each in (*explain_reviews(sentiment), *explain_translations(translation))
    ]
    assert flat.count(" (?)") == sum(doubts) + flat.count("not (?)")
    assert any(doubts)  # models that learnt for six steps cannot all be right
