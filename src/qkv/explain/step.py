"""A walk through one attention: named steps in order, each with the operation that made it."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from qkv.errors import UsageError, unknown
from qkv.explain.matrix import Matrix
from qkv.explain.operation import Operation


class Word(str):
    """A word of the reader's text inside a sentence of ours; renderers set it apart."""


Sentence = tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Step:
    """One matrix of the walk."""

    name: str
    title: str
    equation: str
    latex: str
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    value: Matrix
    made_by: Operation
    sentence: Sentence = ()
    axes: tuple[str, str] = ("", "")  # what the rows and columns stand for

    @property
    def given(self) -> bool:
        return not self.made_by.inputs

    def place(self, row: int, column: int) -> str:
        """A cell by name, as in scores(poem, write)."""
        return f"{self.name}({self.rows[row]}, {self.columns[column]})"


@dataclass(frozen=True)
class Walk:
    """All steps, in the order they are computed."""

    title: str
    steps: tuple[Step, ...]

    def __iter__(self) -> Iterator[Step]:
        return iter(self.steps)

    def __getitem__(self, name: str) -> Step:
        for step in self.steps:
            if step.name == name:
                return step
        raise UsageError(unknown("step", name, (step.name for step in self.steps)))

    def inputs(self, step: Step) -> list[Matrix]:
        return [self[name].value for name in step.made_by.inputs]

    def only(self, names: Sequence[str]) -> list[Step]:
        """The steps of those names, in the order of the walk; all of them if none is named."""
        asked = [self[name] for name in names]
        return [step for step in self.steps if not names or step in asked]

    def cells(
        self, row: str, column: str, names: Sequence[str] = ()
    ) -> list[tuple[Step, int, int]]:
        """Every asked step that has a cell of that row and column, by label or by number.

        Two numbers mean a query and a key, unless a step is named.
        """
        numbers = row.isdecimal() and column.isdecimal() and not names
        found = [
            (step, i, j)
            for step in self.only(names)
            if (step.axes == ("query", "key") or not numbers)
            and (i := _index(step.rows, row)) is not None
            and (j := _index(step.columns, column)) is not None
        ]
        if not found:
            rows = dict.fromkeys(label for step in self.steps for label in step.rows)
            columns = dict.fromkeys(label for step in self.steps for label in step.columns)
            raise UsageError(
                f"no step has a cell {row},{column}; rows: {', '.join(rows)}; "
                f"columns: {', '.join(columns)}"
            )
        return found


def _index(labels: tuple[str, ...], asked: str) -> int | None:
    """The place of a label, in any case, or a place counted from 1."""
    if asked in labels:
        return labels.index(asked)
    folded = [label.casefold() for label in labels]
    if asked.casefold() in folded:
        return folded.index(asked.casefold())
    if asked.isdecimal() and 1 <= int(asked) <= len(labels):
        return int(asked) - 1
    return None
