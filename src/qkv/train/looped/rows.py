"""Norms, sums and the feed-forward part of a layer, through compiled passes."""

from torch import Tensor, nn

from qkv.engine.quick.looped import activation_number
from qkv.model.dropout import Dropout
from qkv.model.feed_forward import FeedForward
from qkv.model.residual import Add
from qkv.native.learning import NEVER, Chance
from qkv.train.looped.functions import bent, dropped, joined, multiplied, normed


class LoopedLinear(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        return multiplied(x, [self.weight], [self.bias])


class LoopedNorm(nn.LayerNorm):
    def forward(self, x: Tensor) -> Tensor:
        return normed(x, self.weight, self.bias, self.eps)


class LoopedDropout(Dropout):
    def forward(self, x: Tensor) -> Tensor:
        chance = self.draw()
        return dropped(x, chance) if chance.dropped else x

    def draw(self) -> Chance:
        """Whom it drops this time: nobody but in training."""
        return Chance.draw(self.dropped) if self.training else NEVER


class LoopedAdd(Add):
    dropout: LoopedDropout

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return joined(x, y, self.dropout.draw())


class LoopedFeedForward(FeedForward):
    """The activation and its dropout are one pass."""

    dropout: LoopedDropout

    @staticmethod
    def fits(plain: FeedForward) -> bool:
        return type(plain) is FeedForward and activation_number(plain.activation) is not None

    def forward(self, x: Tensor) -> Tensor:
        kind = activation_number(self.activation)
        assert kind is not None
        narrow: Tensor = self.down(bent(self.up(x), kind, self.dropout.draw()))
        return narrow
