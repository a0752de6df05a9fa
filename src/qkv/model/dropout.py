"""Dropout: in training some numbers become 0 and the others larger (Srivastava et al. 2014)."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

STEPS = 256  # chances there are, as each number is judged by one random byte


class Dropout(nn.Module):
    """Each number is 0 with chance p, else divided by the chance to stay; all are kept in eval.

    On a CPU torch draws a whole random word for each number, which takes longer than the layer it
    follows. Here a word is drawn for eight of them, so p is rounded to 256ths.
    """

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p
        self.dropped = round(p * STEPS)

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or not self.dropped:
            return x
        if x.device.type != "cpu":
            return F.dropout(x, self.dropped / STEPS)
        words = torch.empty((x.numel() + 7) // 8, dtype=torch.int64).random_(-(2**63), None)
        chances = words.view(torch.uint8)[: x.numel()].view(x.shape)
        kept = (chances >= self.dropped).to(x.dtype)
        return x * kept.mul_(STEPS / (STEPS - self.dropped))
