"""The tour from an empty folder to its page, with models that are over in a moment."""

import re
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from rich.cells import cell_len
from tests.tour.tiny_tours import STEPS, Stops, tiny_pace, weights, whole

from qkv.tour.pace import FULL, QUICK, Pace
from qkv.tour.results import Outcome, judgements, renderings
from qkv.tour.terminal import for_ones_own, for_these
from qkv.tour.tour import PARTS, Folder, train
from qkv.training.run import Event, Run

CPU = torch.device("cpu")
Ran = Callable[..., tuple[int, str, str]]


class Heard:
    """Follows a training: the run, and the number of every step and evaluation."""

    def __init__(self) -> None:
        self.run: Run | None = None
        self.numbers: list[int] = []

    def __call__(self, run: Run, event: Event) -> None:
        self.run = run
        self.numbers.append(event.number)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Pace:
    return tiny_pace(tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory, tiny: Pace) -> tuple[Folder, list[str], Stops]:
    """A whole tour, what it told, and what was heard of it."""
    folder, watch = Folder(tmp_path_factory.mktemp("done") / "tour", tiny.name), Stops()
    return folder, whole(folder, tiny, watch), watch


def test_the_tour_tells_everything_in_order(done: tuple[Folder, list[str], Stops]) -> None:
    folder, lines, _ = done
    text = "\n".join(lines)
    parts = [
        "1. Attention by hand", "0.3564", "2. Encoder:", "made by", "3. Decoder:", "│ ",
        "4. Encoder–decoder:", " ← ", "5. Similar texts", "6. Proofs on all three", "checks hold",
        "Next", str(folder.report), "qkv classify", "With a file of your own", "qkv train classify",
    ]  # fmt: skip
    places = [text.index(part) for part in parts]
    assert places == sorted(places)
    assert folder.results == f"{text}\n"


def test_every_score_stands_beside_its_baseline(
    done: tuple[Folder, list[str], Stops], tiny: Pace
) -> None:
    folder, lines, _ = done
    flat = " ".join(" ".join(lines).split())
    for part in tiny.parts:
        outcome = Outcome(part, folder.bundle(part.name))
        figures = (outcome.figure(outcome.score), outcome.figure(outcome.baseline))
        assert f"{figures[0]} {part.measured}; {part.baseline}: {figures[1]}" in flat
        assert f"trained for {STEPS} steps" in outcome.trained


def test_all_checks_hold_on_all_three(done: tuple[Folder, list[str], Stops]) -> None:
    proofs = [line for line in done[1] if line.endswith("checks hold")]
    assert [line.split()[0] for line in proofs] == list(PARTS)
    for line in proofs:
        held, of = re.findall(r"\d+", line)
        assert held == of
        assert int(of) > 9


def test_the_terminal_needs_eighty_columns_but_for_commands_to_copy(
    done: tuple[Folder, list[str], Stops],
) -> None:
    folder, lines, _ = done
    wide = [line for part in lines for line in part.split("\n") if cell_len(line) > 80]
    assert [line for line in wide if str(folder.path.parent) not in line] == []
    here = [command for command, _ in (*for_these(Path("tour")), *for_ones_own())]
    assert max(map(len, here)) + 2 <= 80


def test_the_page_is_one_file_that_asks_for_nothing(
    done: tuple[Folder, list[str], Stops],
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


def test_the_page_has_the_pictures(done: tuple[Folder, list[str], Stops]) -> None:
    page = done[0].report.read_text("utf-8")
    for name in PARTS:
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
    done: tuple[Folder, list[str], Stops], qkv: Ran, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for command, _ in for_these(done[0].path):
        code, out, err = qkv(*shlex.split(command)[1:])
        assert code == 0, (command, err)
        assert out or Path(command.split(" -o ")[1]).is_file()


@pytest.mark.slow
def test_a_tour_that_is_stopped_goes_on_to_the_very_same_weights(
    done: tuple[Folder, list[str], Stops], tiny: Pace, tmp_path: Path
) -> None:
    """Inside a part, between two, after an evaluation, and when all is trained."""
    folder, heard = Folder(tmp_path / "tour", tiny.name), list[tuple[str, int]]()
    for until in (
        "sentiment: step 2 of", "language: learning", "language: step 5 of",
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
    for part in tiny.parts:
        assert weights(folder, part) == weights(done[0], part)
    assert [line.split()[0] for line in lines if "checks hold" in line] == list(PARTS)


def test_a_model_whose_training_is_killed_comes_out_the_same(
    done: tuple[Folder, list[str], Stops], tiny: Pace, tmp_path: Path
) -> None:
    """Nothing is saved on the spot: it goes on from the last evaluation, or from the start."""

    class Killed(BaseException):
        pass

    folder = Folder(tmp_path, tiny.name)
    for part in tiny.parts:
        for last in (2, 5):

            def kill(run: Run, event: Event, last: int = last) -> None:
                if event.number == last:
                    raise Killed

            with pytest.raises(Killed):
                train(part, folder.bundle(part.name), CPU, kill)
        heard = Heard()
        train(part, folder.bundle(part.name), CPU, heard)
        assert heard.numbers == [4, 5, 6, 6]  # after the evaluation at 3
        assert weights(folder, part) == weights(done[0], part)


def test_what_the_parts_say_of_their_scores_is_so(tiny: Pace, tmp_path: Path) -> None:
    for part in tiny.parts:
        heard = Heard()
        train(part, tmp_path / part.name, CPU, heard)
        assert heard.run is not None
        run = heard.run
        judged = run.data_module.judge(run.model)
        assert judged.baseline_is in part.baseline
        assert {part.metric} <= set(judged.scores) & set(judged.baseline)
        assert run.data_module.metric.name == part.watched
        assert run.data_module.metric.higher_is_better == part.higher_is_better
        train(part, tmp_path / part.name, CPU, again := Heard())
        assert again.run is None  # it was there already


def test_both_paces_train_the_three_families() -> None:
    for pace in (FULL, QUICK):
        assert [part.name for part in pace.parts] == list(PARTS)
        assert [part.args.job for part in pace.parts] == ["classify", "language", "translate"]


def test_words_that_do_no_better_than_chance_are_marked_and_counted(
    done: tuple[Folder, list[str], Stops], tiny: Pace
) -> None:
    folder, lines, _ = done
    flat = " ".join(" ".join(lines).split())
    sentiment = Outcome(tiny.sentiment, folder.bundle("sentiment"))
    translation = Outcome(tiny.translation, folder.bundle("translation"))
    for found, of in (
        (judgements(sentiment), "reviews, deleting"),
        (renderings(translation), "sentences, hiding"),
    ):
        sure = [each.sure for each in found]
        assert f"For {sum(sure)} of {len(sure)} {of} the words named" in flat
    doubts = [not each.sure for each in (*judgements(sentiment), *renderings(translation))]
    assert flat.count(" (?)") == sum(doubts) + flat.count("not (?)")
    assert any(doubts)  # models that learnt for six steps cannot all be right
