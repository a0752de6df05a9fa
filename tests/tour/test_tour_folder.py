"""What may stand in the folder of a tour, and how the command treats it."""

import json
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.tour.tiny_tours import tiny_plan

from qkv.cli import tour as command
from qkv.cli.progress import GracefulStop
from qkv.tour.stages import ProgressUpdate, StageClock
from qkv.tour.tour import MODELS, REPORT, RESULTS, TOUR_FILE, TourFolder

Ran = Callable[..., tuple[int, str, str]]


def finished(path: Path, plan: str = "quick") -> TourFolder:
    """A folder that looks like a finished tour."""
    folder = TourFolder(path, plan)
    folder.begin()
    for name in MODELS:
        folder.bundle(name).mkdir()
        (folder.bundle(name) / "MANIFEST.json").write_text("{}")
    folder.write_page("<p>page</p>")
    folder.write_results("what was told\n")
    return folder


def test_a_finished_tour_is_told_again_and_not_redone(tmp_path: Path, qkv: Ran) -> None:
    finished(tmp_path / "tour")
    code, out, err = qkv("tour", "--quick", "-o", tmp_path / "tour")
    assert (code, out) == (0, "what was told\n")
    assert "is already finished" in err
    assert "--again" in err
    assert "-o" in err


@pytest.mark.parametrize(
    "missing", [*(f"{name}/MANIFEST.json" for name in MODELS), REPORT, RESULTS, TOUR_FILE]
)
def test_a_tour_that_lacks_anything_is_not_finished(tmp_path: Path, missing: str) -> None:
    folder = finished(tmp_path / "tour")
    assert folder.finished
    (folder.path / missing).unlink()
    assert not folder.finished


def test_a_folder_with_anything_else_in_it_is_refused(tmp_path: Path, qkv: Ran) -> None:
    (tmp_path / "thesis.txt").write_text("all my work")
    code, out, err = qkv("tour", "-o", tmp_path)
    assert (code, out) == (2, "")
    assert err == (f"qkv: {tmp_path} holds no tour but 'thesis.txt'; name another folder with -o\n")
    assert [entry.name for entry in tmp_path.iterdir()] == ["thesis.txt"]


def test_again_takes_away_the_tour_and_nothing_of_anybody_else(tmp_path: Path, qkv: Ran) -> None:
    folder = finished(tmp_path / "tour")
    (folder.path / ".sentiment.old").mkdir()  # of a save that was killed
    TourFolder(folder.path, "full").begin(again=True)
    assert [entry.name for entry in folder.path.iterdir()] == [TOUR_FILE]
    assert json.loads((folder.path / TOUR_FILE).read_text())["plan"] == "full"
    (folder.path / "notes.txt").write_text("mine")
    code, _, err = qkv("tour", "--again", "-o", folder.path)
    assert code == 2
    assert "'notes.txt' besides a tour" in err
    assert (folder.path / "notes.txt").exists()


def test_a_tour_of_another_plan_is_refused_with_the_way_out(tmp_path: Path, qkv: Ran) -> None:
    finished(tmp_path / "tour", "quick")
    code, _, err = qkv("tour", "-o", tmp_path / "tour")
    assert code == 2
    assert "holds a quick tour, not a standard one; pass --quick to continue it" in err
    finished(tmp_path / "other", "standard")
    code, _, err = qkv("tour", "--quick", "-o", tmp_path / "other")
    assert code == 2
    assert "holds a standard tour, not a quick one; leave --quick out to continue it" in err
    (tmp_path / "other" / TOUR_FILE).write_text('{"pace": "full"}')  # as qkv 0.1 wrote it
    code, _, err = qkv("tour", "-o", tmp_path / "other")
    assert code == 2
    assert "holds a full tour, not a standard one; pass --full to continue it" in err


def test_quick_and_full_exclude_each_other(tmp_path: Path, qkv: Ran) -> None:
    code, _, err = qkv("tour", "--quick", "--full", "-o", tmp_path / "tour")
    assert code == 2
    assert "--quick and --full exclude each other" in err
    assert not (tmp_path / "tour").exists()


def test_a_file_is_no_folder(tmp_path: Path, qkv: Ran) -> None:
    (tmp_path / "tour").write_text("a file")
    code, _, err = qkv("tour", "-o", tmp_path / "tour")
    assert code == 2
    assert "is a file; name a folder" in err


@pytest.mark.slow
def test_the_program_is_stopped_and_goes_on(
    tmp_path: Path, qkv: Ran, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An interrupt in the middle of training: exit code 130, and no step is lost."""
    monkeypatch.setattr("qkv.tour.QUICK", tiny_plan(tmp_path / "data"))
    monkeypatch.setattr(command, "MAX_THREADS", 1)  # the tests run side by side
    watched = command.ProgressPrinter.__call__

    def interrupt(self: command.ProgressPrinter, update: ProgressUpdate) -> None:
        if update.stage == "language" and update.message.startswith("step 4 of"):
            signal.raise_signal(signal.SIGINT)
        watched(self, update)

    monkeypatch.setattr(command.ProgressPrinter, "__call__", interrupt)
    code, out, err = qkv("tour", "--quick", "-o", tmp_path / "tour")
    assert code == 130
    assert "3. Decoder" in out
    assert "the same command continues" in err
    assert "\r" not in err  # nobody could see a line change
    monkeypatch.setattr(command.ProgressPrinter, "__call__", watched)
    code, out, err = qkv("tour", "--quick", "-o", tmp_path / "tour")
    assert code == 0
    assert "sentiment: already trained" in err
    assert "language: continuing after step 4 of 6" in err
    assert f"The page with pictures: {tmp_path / 'tour' / REPORT}" in out
    code, told, _ = qkv("tour", "--quick", "-o", tmp_path / "tour")
    assert (code, told) == (0, out)


def test_lines_come_seldom_where_they_cannot_be_overwritten(
    capsys: pytest.CaptureFixture[str],
) -> None:
    watcher = command.ProgressPrinter(GracefulStop())
    for number in range(500):
        watcher(ProgressUpdate(1, 6, "sentiment", f"step {number}", 83.0, is_start=number == 0))
    said = capsys.readouterr().err
    assert said == "[1/6] sentiment: step 0; about 1:23 left in all\n"


def test_the_clock_says_what_is_left_from_what_it_took(monkeypatch: pytest.MonkeyPatch) -> None:
    now, heard = [0.0], list[ProgressUpdate]()
    monkeypatch.setattr("qkv.tour.stages.time.perf_counter", lambda: now[0])
    clock = StageClock({"a": 10.0, "b": 20.0, "c": 5.0}, heard.append)
    clock.start("a", "")
    assert heard[-1].seconds_left == 35  # nothing known yet: as on a quiet machine
    now[0] = 15.0
    clock.advance(0.5, "half")
    assert heard[-1].seconds_left == pytest.approx(3 * 30)  # three times as slow
    now[0] = 30.0
    clock.advance(1.0, "all")
    clock.start("b", "")
    clock.skip_to(0.75)  # an earlier session did that
    assert clock.seconds_left == pytest.approx(3 * 10)
    now[0] = 36.0
    clock.advance(0.85, "")
    assert heard[-1].seconds_left == pytest.approx(3 * 8)
    assert [update.number for update in heard] == [1, 1, 1, 2, 2]
