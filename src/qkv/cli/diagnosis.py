"""What an examination means: what is broken, what is missing for what, and what to do."""

import shlex
from dataclasses import dataclass

from qkv.cli.examination import Examination
from qkv.machine import Package
from qkv.machine.packages import EXTRAS

FEW = 1_000_000_000  # bytes of free memory or disk that are worth a word
NO_CUDA = " --index-url https://download.pytorch.org/whl/cpu"  # else several gigabytes are fetched


@dataclass(frozen=True)
class Diagnosis:
    """Sentences; only what is broken keeps qkv from working."""

    broken: list[str]
    missing: list[str]
    notes: list[str]

    @property
    def verdict(self) -> str:
        if self.broken:
            return "qkv cannot work here until what is broken is mended."
        if self.missing:
            return "qkv works here: it trains, answers and explains; only what is named is missing."
        return "qkv works here, with everything it can make use of."


def diagnose(found: Examination) -> Diagnosis:
    return Diagnosis(_broken(found), _missing(found), _notes(found))


def _broken(found: Examination) -> list[str]:
    """What keeps qkv from working, each with the command that mends it."""
    if not found.installed:
        return [
            "qkv runs without being installed, so nothing says what it needs; in its checkout run: "
            f"{shlex.quote(found.executable)} -m pip install -c constraints.txt -e ."
        ]
    bad = [p for p in found.packages if p.extra is None and p.trouble]
    return [f"{p.name}: {p.trouble}; run: {_install(found, [p])}" for p in bad]


def _missing(found: Examination) -> list[str]:
    """For each extra that is not whole: the packages, what they are for, how to get them."""
    lines = []
    for extra, purpose in EXTRAS.items():
        absent = [p for p in found.packages if p.extra == extra and p.trouble]
        if absent:
            names = ", ".join(p.name for p in absent)
            lines.append(f"{names}, for {purpose}; run: {_install(found, absent)}")
    return lines


def _notes(found: Examination) -> list[str]:
    """What works, but slower or less well than it could."""
    said, usable = [], found.cores.usable
    if found.torch and found.torch.threads > usable:
        said.append(
            f"torch computes with {found.torch.threads} threads where {usable} can run at once; "
            f"set OMP_NUM_THREADS={usable}, or pass --threads {usable}"
        )
    if found.speed and found.speed.int8_gops is None:
        said.append(
            "torch multiplies in 8 bits only with AVX-512 VNNI, which is not here: --int8 needs "
            "--compile, and without it is taken for float32"
        )
    if found.compiler is None:
        said.append("there is no C++ compiler, which only --compile of a model's answers needs")
    if found.torch and not found.torch.onednn:
        said.append("this torch is built without oneDNN, so products are slower")
    for name, room in (("memory", found.memory), (f"disk at {found.cache}", found.cache_disk)):
        if room.free is not None and room.free < FEW:
            said.append(f"only {as_bytes(room.free)} of {name} are free")
    if not found.shows_signs:
        said.append(
            f"the terminal writes {found.encoding}, so − and √ become plain; "
            "set PYTHONIOENCODING=utf-8 if it can show them"
        )
    return said


def _install(found: Examination, wanted: list[Package]) -> str:
    names = " ".join(shlex.quote(p.requirement) for p in wanted)
    where = NO_CUDA if any(p.name == "torch" for p in wanted) else ""
    return f"{shlex.quote(found.executable)} -m pip install {names}{where}"


def as_bytes(number: int) -> str:
    return f"{number / 1e9:,.1f} GB" if number >= FEW else f"{number / 1e6:,.0f} MB"
