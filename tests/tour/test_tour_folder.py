"""What may stand in the folder of a tour, and how the command treats it."""

import json
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.tour.tiny_tours import tiny_pace

from qkv.cli import tour as command
from qkv.cli.progress import Stop
from qkv.tour.pace import Clock, Moment
from qkv.tour.tour import MARK, PARTS, REPORT, RESULTS, Folder

Ran = Callable[..., tuple[int, str, str]]


def finished(path: Path, pace: str = "quick") -> Folder:
    """A folder that looks like a finished tour."""
    folder = Folder(path, pace)
    folder.begin()
    for name in PARTS:
        folder.bundle(name).mkdir()
        (folder.bundle(name) / "MANIFEST.json").write_text("{}")
    folder.keep_page("<p>page</p>")
    folder.keep_results("what was told\n")
    return folder


def test_a_finished_tour_is_told_again_and_not_redone(tmp_path: Path, qkv: Ran) -> None:
    finished(tmp_path / "tour")
    code, out, err = qkv("tour", "--quick", "-o", tmp_path / "tour")
    assert (code, out) == (0, "what was told\n")
    assert "finished before" in err
    assert "--again" in err
    assert "-o" in err


@pytest.mark.parametrize(
    "missing", [*(f"{name}/MANIFEST.json" for name in PARTS), REPORT, RESULTS, MARK]
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
    Folder(folder.path, "full").begin(again=True)
    assert [entry.name for entry in folder.path.iterdir()] == [MARK]
    assert json.loads((folder.path / MARK).read_text())["pace"] == "full"
    (folder.path / "notes.txt").write_text("mine")
    code, _, err = qkv("tour", "--again", "-o", folder.path)
    assert code == 2
    assert "'notes.txt' besides a tour" in err
    assert (folder.path / "notes.txt").exists()


def test_a_tour_at_another_pace_is_refused_with_the_way_out(tmp_path: Path, qkv: Ran) -> None:
    finished(tmp_path / "tour", "quick")
    code, _, err = qkv("tour", "-o", tmp_path / "tour")
    assert code == 2
    assert "holds a quick tour, not a full one; pass --quick to go on with it" in err
    finished(tmp_path / "other", "full")
    code, _, err = qkv("tour", "--quick", "-o", tmp_path / "other")
    assert code == 2
    assert "holds a full tour, not a quick one; leave --quick out" in err


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
    monkeypatch.setattr("qkv.tour.pace.QUICK", tiny_pace(tmp_path / "data"))
    monkeypatch.setattr(command, "CORES", 1)  # the tests run side by side
    watched = command.Watcher.__call__

    def interrupt(self: command.Watcher, moment: Moment) -> None:
        if moment.name == "language" and moment.said.startswith("step 4 of"):
            signal.raise_signal(signal.SIGINT)
        watched(self, moment)

    monkeypatch.setattr(command.Watcher, "__call__", interrupt)
    code, out, err = qkv("tour", "--quick", "-o", tmp_path / "tour")
    assert code == 130
    assert "3. Decoder" in out
    assert "the same command goes on" in err
    assert "\r" not in err  # nobody could see a line change
    monkeypatch.setattr(command.Watcher, "__call__", watched)
    code, out, err = qkv("tour", "--quick", "-o", tmp_path / "tour")
    assert code == 0
    assert "sentiment: trained already" in err
    assert "language: going on after step 4 of 6" in err
    assert f"The page with pictures: {tmp_path / 'tour' / REPORT}" in out
    code, told, _ = qkv("tour", "--quick", "-o", tmp_path / "tour")
    assert (code, told) == (0, out)


def test_lines_come_seldom_where_they_cannot_be_overwritten(
    capsys: pytest.CaptureFixture[str],
) -> None:
    watcher = command.Watcher(Stop())
    for number in range(500):
        watcher(Moment(1, 6, "sentiment", f"step {number}", 83.0, begins=number == 0))
    said = capsys.readouterr().err
    assert said == "[1/6] sentiment: step 0; about 1:23 left in all\n"


def test_the_clock_says_what_is_left_from_what_it_took(monkeypatch: pytest.MonkeyPatch) -> None:
    now, heard = [0.0], list[Moment]()
    monkeypatch.setattr("qkv.tour.pace.time.perf_counter", lambda: now[0])
    clock = Clock({"a": 10.0, "b": 20.0, "c": 5.0}, heard.append)
    clock.begin("a", "")
    assert heard[-1].left == 35  # nothing known yet: as on a quiet machine
    now[0] = 15.0
    clock.at(0.5, "half")
    assert heard[-1].left == pytest.approx(3 * 30)  # three times as slow
    now[0] = 30.0
    clock.at(1.0, "all")
    clock.begin("b", "")
    clock.had(0.75)  # an earlier session did that
    assert clock.left == pytest.approx(3 * 10)
    now[0] = 36.0
    clock.at(0.85, "")
    assert heard[-1].left == pytest.approx(3 * 8)
    assert [moment.number for moment in heard] == [1, 1, 1, 2, 2]
