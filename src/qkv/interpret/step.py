"""A walk through one attention: named matrices in order, each with the operation that made it."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from qkv.errors import UsageError, unknown
from qkv.interpret.matrix import Matrix
from qkv.interpret.trace.operations import Operation


class UserWord(str):
    """A word of the reader's text inside one of our sentences; renderers emphasise it."""


Sentence = tuple[str, ...]


@dataclass(frozen=True, eq=False)
class WalkStep:
    """One matrix of a walk, computed by `operation` from the steps named in `inputs`."""

    name: str
    title: str
    equation: str
    latex: str
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    value: Matrix
    operation: Operation
    inputs: tuple[str, ...] = ()
    sentence: Sentence = ()
    axes: tuple[str, str] = ("", "")  # what rows and columns are: query, key, word or features

    @property
    def is_input(self) -> bool:
        """Whether the walk takes the matrix as it is, instead of computing it from other steps."""
        return not self.operation.recomputable

    def cell_name(self, row: int, column: int) -> str:
        """As in scores(poem, write)."""
        return f"{self.name}({self.rows[row]}, {self.columns[column]})"


@dataclass(frozen=True)
class Walk:
    """All steps, in the order they are computed."""

    title: str
    steps: tuple[WalkStep, ...]

    def __iter__(self) -> Iterator[WalkStep]:
        return iter(self.steps)

    def __getitem__(self, name: str) -> WalkStep:
        for step in self.steps:
            if step.name == name:
                return step
        raise UsageError(unknown("step", name, (step.name for step in self.steps)))

    @property
    def names(self) -> tuple[str, ...]:
        """Of all steps, in order."""
        return tuple(step.name for step in self.steps)

    def inputs(self, step: WalkStep) -> list[Matrix]:
        """The matrices the step is computed from."""
        return [self[name].value for name in step.inputs]

    def select(self, names: Sequence[str]) -> list[WalkStep]:
        """The steps of these names, in the order of the walk; all steps if there are no names."""
        if not names:
            return list(self.steps)
        selection = [self[name] for name in names]
        return [step for step in self.steps if step in selection]

    def cells(
        self, row: str, column: str, names: Sequence[str] = ()
    ) -> list[tuple[WalkStep, int, int]]:
        """Every selected step that has this cell, with its indices.

        Row and column are labels or numbers from 1. Without names, two numbers mean a query and a
        key, because every matrix has a first row and column.
        """
        only_grids = row.isdecimal() and column.isdecimal() and not names
        matches = []
        for step in self.select(names):
            if only_grids and step.axes != ("query", "key"):
                continue
            i = _find_label(step.rows, row)
            j = _find_label(step.columns, column)
            if i is not None and j is not None:
                matches.append((step, i, j))
        if not matches:
            rows = dict.fromkeys(label for step in self.steps for label in step.rows)
            columns = dict.fromkeys(label for step in self.steps for label in step.columns)
            raise UsageError(
                f"no step has a cell {row},{column}; rows: {', '.join(rows)}; "
                f"columns: {', '.join(columns)}"
            )
        return matches


def _find_label(labels: tuple[str, ...], query: str) -> int | None:
    """The index of a label, ignoring case, or of a position counted from 1."""
    if query in labels:
        return labels.index(query)
    folded = [label.casefold() for label in labels]
    if query.casefold() in folded:
        return folded.index(query.casefold())
    if query.isdecimal() and 1 <= int(query) <= len(labels):
        return int(query) - 1
    return None
