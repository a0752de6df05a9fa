"""One layer of every family: attention, in some decoders cross attention, and feed-forward."""

from torch import Tensor, nn

from qkv.model.feed_forward import FeedForwardChoice
from qkv.model.heads import AttentionChoice
from qkv.model.norm import Norm
from qkv.model.residual import ArrangementChoice, Joint, Keep
from qkv.model.view import View


class Block(nn.Module):
    """Attention mixes positions; the feed-forward changes each one by itself."""

    def __init__(
        self,
        width: int,
        attention: AttentionChoice,
        feed_forward: FeedForwardChoice,
        norm: Norm,
        residual: ArrangementChoice,
        dropout: float,
        cross: bool,
        first: bool = False,
    ) -> None:
        super().__init__()
        around = residual.first_attention if first else residual.attention
        joint = around(norm, width, dropout)
        self.attention_in, self.attention_join, self.attention_out = joint
        self.attention = attention.build(width)

        joint = residual.cross(norm, width, dropout) if cross else _around_nothing()
        self.cross_in, self.cross_join, self.cross_out = joint
        self.cross = attention.build(width, cross=True) if cross else Absent()

        joint = residual.feed_forward(norm, width, dropout)
        self.feed_forward_in, self.feed_forward_join, self.feed_forward_out = joint
        self.feed_forward = feed_forward.build(width, dropout)

    def forward(self, x: Tensor, view: View) -> Tensor:
        mixed = self.attention(self.attention_in(x), view)
        x = self.attention_out(self.attention_join(x, mixed))
        read = self.cross(self.cross_in(x), view)
        x = self.cross_out(self.cross_join(x, read))
        changed = self.feed_forward(self.feed_forward_in(x))
        return self.feed_forward_out(self.feed_forward_join(x, changed))


class ParallelBlock(Block):
    """Attention and feed-forward side by side: both read what comes in."""

    def forward(self, x: Tensor, view: View) -> Tensor:
        mixed = self.attention(self.attention_in(x), view)
        changed = self.feed_forward(self.feed_forward_in(x))
        x = self.attention_out(self.attention_join(x, mixed))
        return self.feed_forward_out(self.feed_forward_join(x, changed))


class Absent(nn.Module):
    """The cross attention of a block that has none."""

    def forward(self, x: Tensor, view: View) -> None:
        return None


def _around_nothing() -> Joint:
    return Joint(nn.Identity(), Keep(), nn.Identity())
