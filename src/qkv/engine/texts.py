"""Texts side by side in one tensor, each as long as it is."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor


@dataclass(frozen=True)
class Texts:
    """ids (B, T), of which the first lengths[b] are real; no lengths if all of them are."""

    ids: Tensor
    lengths: Tensor | None
    tokens: int  # real ones

    @classmethod
    def of(cls, texts: Sequence[ArrayLike], pad: int) -> "Texts":
        arrays = [np.asarray(text, dtype=np.int64) for text in texts]
        sizes = np.array([len(text) for text in arrays])
        ids = np.full((len(arrays), max(1, int(sizes.max(initial=0)))), pad)
        for row, text in zip(ids, arrays, strict=True):
            row[: len(text)] = text
        even = (sizes == ids.shape[1]).all()
        lengths = None if even else torch.from_numpy(sizes)
        return cls(torch.from_numpy(ids), lengths, int(sizes.sum()))

    def __len__(self) -> int:
        return len(self.ids)

    def to(self, device: torch.device) -> "Texts":
        lengths = None if self.lengths is None else self.lengths.to(device)
        return Texts(self.ids.to(device), lengths, self.tokens)
