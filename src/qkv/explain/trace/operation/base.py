"""What one step of a model does to its inputs: in words, and once more in plain NumPy."""

from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


@dataclass(frozen=True)
class Operation:
    """A value, so that it can be written down; `compute` is the definition, without torch."""

    @property
    def equation(self) -> str:
        """On one line, as people write it."""
        raise NotImplementedError

    @property
    def latex(self) -> str:
        raise NotImplementedError

    def compute(self, *inputs: Array) -> Array:
        """The result from the inputs, in their order."""
        raise NotImplementedError

    def json(self) -> dict[str, Any]:
        return {"kind": type(self).__name__, **asdict(self)}


@dataclass(frozen=True)
class Fixed(Operation):
    """One that is always written the same way."""

    as_text: ClassVar[str]
    as_latex: ClassVar[str]

    @property
    def equation(self) -> str:
        return self.as_text

    @property
    def latex(self) -> str:
        return self.as_latex


@dataclass(frozen=True)
class Given(Operation):
    """Not computed: it comes from outside, as `what` says."""

    what: str = "given"

    @property
    def equation(self) -> str:
        return self.what

    @property
    def latex(self) -> str:
        return rf"\text{{{self.what}}}"


def wide(*arrays: Array) -> tuple[Array, ...]:
    """In float64, so that the order of a sum does not show."""
    return tuple(np.asarray(array, dtype=np.float64) for array in arrays)


def number(value: float) -> str:
    """A factor as people write it: enough digits, no more."""
    return f"{value:.6g}".replace("-", "−")
