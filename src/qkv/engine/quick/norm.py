"""Root-mean-square norms in fewer steps than torch's, which is not fused on a CPU."""

import torch
from torch import Tensor, nn

from qkv.model.norm import RMSNormAroundOne


class QuickRMSNorm(nn.Module):
    """x ÷ √(mean of x² + eps) × gain; a single row has its mean taken as one dot product."""

    def __init__(self, plain: nn.RMSNorm) -> None:
        super().__init__()
        gain = plain.weight.detach()
        self.register_buffer("gain", gain + 1.0 if isinstance(plain, RMSNormAroundOne) else gain)
        self.gain: Tensor
        self.eps = torch.finfo(gain.dtype).eps if plain.eps is None else plain.eps

    def forward(self, x: Tensor) -> Tensor:
        width = len(self.gain)
        if x.numel() == width:
            row = x.view(width)
            return (x * self.gain).mul_((float(torch.dot(row, row)) / width + self.eps) ** -0.5)
        size = (x * x).mean(dim=-1, keepdim=True).add_(self.eps).rsqrt_()
        return (x * size).mul_(self.gain)
