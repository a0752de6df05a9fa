"""The folder of a tour: three bundles, a page, and what was told; nothing of anybody else's.

tour/tour.json      that it is a tour, and at which pace
tour/sentiment/     a bundle, or a run that is not finished; also language/ and translation/
tour/results.txt    what the terminal was told, once all is done
tour/report.html    the same with pictures
"""

import json
import shutil
from dataclasses import dataclass
from pathlib import Path

import qkv
from qkv.bundle.manifest import MANIFEST
from qkv.errors import UsageError
from qkv.files import listed, read_json, replace_file, unwritten

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
