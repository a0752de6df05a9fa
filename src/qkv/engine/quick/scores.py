"""The scores of all tokens, with a product of its own in place of the embedding's table."""

from torch import Tensor, nn

from qkv.attention import soft_cap
from qkv.model.output import TiedScores


class Scores(nn.Module):
    """Equal to `TiedScores` or `OwnScores`, whichever table the product was made of."""

    def __init__(self, plain: TiedScores, product: nn.Module) -> None:
        super().__init__()
        self.scale, self.product, self.cap = plain.scale, product, plain.cap

    def forward(self, states: Tensor, lengths: Tensor, table: Tensor) -> Tensor:
        scores: Tensor = self.product(self.scale(states))
        return scores if self.cap is None else soft_cap(scores, self.cap)
