"""What every batch says of itself before anything is computed."""

from typing import Protocol


class Batch(Protocol):
    """Tensors for one step."""

    @property
    def tokens(self) -> int:
        """Real tokens the model reads."""
        ...

    @property
    def targets(self) -> int:
        """Real targets it is judged by: what its summed loss is divided by."""
        ...
