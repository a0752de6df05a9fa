"""The packages qkv depends on, required or optional: installed, too old, missing or broken."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from importlib import import_module, metadata

# What each extra is for, in words that follow "for".
EXTRAS = {"parquet": ".parquet files", "excel": ".xlsx files", "serve": "qkv serve"}
DEVELOPMENT_EXTRAS = {
    "test": "make test",
    "dev": "make check",
    "docs": "make site",
    "bench": "bench/",
}
# Modules to import where the name is not that of the package.
MODULES = {"scikit-learn": "sklearn", "pyarrow": "pyarrow.parquet"}


@dataclass(frozen=True)
class Package:
    name: str
    specifier: str  # such as ">=2.13"
    extra: str | None  # None: qkv does not work without it
    version: str | None  # None: it is not installed
    problem: str | None  # why it cannot be used

    @property
    def requirement(self) -> str:
        """As pip takes it."""
        return f"{self.name}{self.specifier}"


def find_packages(requires: Iterable[str] | None = None) -> list[Package]:
    """Every package in qkv's own metadata, and whether it can be used here.

    Required packages are imported, since some break only then; extras are only looked up.
    """
    if requires is None:
        requires = metadata.requires("qkv") or ()
    packages = []
    for line in requires:
        name, specifier, extra = _parse_requirement(line)
        if name != "qkv":  # an extra may name other extras as qkv[...]
            packages.append(_find_package(name, specifier, extra))
    return packages


def _parse_requirement(line: str) -> tuple[str, str, str | None]:
    """'pyarrow>=15; extra == "parquet"' as ("pyarrow", ">=15", "parquet")."""
    requirement, _, condition = line.partition(";")
    match = re.match(r"\s*([\w.-]+)\s*(?:\[[^]]*\])?\s*(.*)", requirement)
    assert match is not None
    extra = None
    extra_match = re.search(r"extra\s*==\s*['\"]([\w-]+)['\"]", condition)
    if extra_match is not None:
        extra = extra_match[1]
    return match[1], match[2].strip(), extra


def _find_package(name: str, specifier: str, extra: str | None) -> Package:
    try:
        version = metadata.version(name)
    except metadata.PackageNotFoundError:
        return Package(name, specifier, extra, None, "it is not installed")
    problem = _version_problem(version, specifier)
    if problem is None and extra is None:
        problem = _import_problem(MODULES.get(name, name.replace("-", "_")))
    return Package(name, specifier, extra, version, problem)


def _version_problem(version: str, specifier: str) -> str | None:
    minimum = re.match(r">=\s*([\d.]+)", specifier)
    if minimum is None or _version_numbers(version) >= _version_numbers(minimum[1]):
        return None
    return f"version {version} is installed, {minimum[1]} or later is needed"


def _version_numbers(version: str) -> tuple[int, ...]:
    """(2, 13) of 2.13.0+cpu: zeros at the end do not count, nor does a local version."""
    match = re.match(r"\d+(\.\d+)*", version)
    if match is None:
        return (0,)
    numbers = [int(number) for number in match[0].split(".")]
    while len(numbers) > 1 and not numbers[-1]:
        numbers.pop()
    return tuple(numbers)


def _import_problem(module: str) -> str | None:
    """Why a module cannot be imported, whatever it raises: broken libraries are looked for."""
    try:
        import_module(module)
    except Exception as error:
        return " ".join(f"importing it fails: {error or type(error).__name__}".split())
    return None
