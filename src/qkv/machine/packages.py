"""The packages qkv needs, and those it can make use of: there, too old, missing or broken."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from importlib import import_module, metadata

# What each extra is for, in words that follow "for".
EXTRAS = {"parquet": ".parquet files"}
WORKSHOP = {  # to work on qkv itself
    "test": "make test", "dev": "make check", "docs": "make site", "bench": "bench/"
}  # fmt: skip
MODULES = {"scikit-learn": "sklearn", "pyarrow": "pyarrow.parquet"}  # else as the package


@dataclass(frozen=True)
class Package:
    name: str
    wanted: str  # such as ">=2.13"
    extra: str | None  # None: qkv does not work without it
    version: str | None  # None: it is not installed
    trouble: str | None  # why it cannot be used

    @property
    def requirement(self) -> str:
        """As pip takes it."""
        return f"{self.name}{self.wanted}"


def packages(requires: Iterable[str] | None = None) -> list[Package]:
    """Every package that qkv's own description names, looked for here.

    What is required is imported, for some packages break only then. Extras are looked up.
    """
    if requires is None:
        requires = metadata.requires("qkv") or ()
    return [_look(*read) for line in requires if (read := _read(line))[0] != "qkv"]


def _read(line: str) -> tuple[str, str, str | None]:
    """'pyarrow>=15; extra == "parquet"' as its three parts."""
    said, _, condition = line.partition(";")
    found = re.match(r"\s*([\w.-]+)\s*(?:\[[^]]*\])?\s*(.*)", said)
    assert found is not None
    extra = re.search(r"extra\s*==\s*['\"]([\w-]+)['\"]", condition)
    return found[1], found[2].strip(), extra[1] if extra else None


def _look(name: str, wanted: str, extra: str | None) -> Package:
    try:
        version = metadata.version(name)
    except metadata.PackageNotFoundError:
        return Package(name, wanted, extra, None, "it is not installed")
    trouble = _too_old(version, wanted)
    if trouble is None and extra is None:
        trouble = _breaks(MODULES.get(name, name.replace("-", "_")))
    return Package(name, wanted, extra, version, trouble)


def _too_old(version: str, wanted: str) -> str | None:
    least = re.match(r">=\s*([\d.]+)", wanted)
    if least is None or _numbers(version) >= _numbers(least[1]):
        return None
    return f"version {version} is installed, {least[1]} or later is needed"


def _numbers(version: str) -> tuple[int, ...]:
    """2.13.0+cpu is (2, 13); zeros at the end say nothing."""
    start = re.match(r"\d+(\.\d+)*", version)
    parts = [int(part) for part in start[0].split(".")] if start else [0]
    while len(parts) > 1 and not parts[-1]:
        parts.pop()
    return tuple(parts)


def _breaks(module: str) -> str | None:
    """Why it cannot be imported, whatever it raises: a broken library is what is looked for."""
    try:
        import_module(module)
    except Exception as error:
        return " ".join(f"importing it fails: {error or type(error).__name__}".split())
    return None
