"""A layer without the parts that do nothing."""

from torch import Tensor, nn

from qkv.model.block import Absent, Block
from qkv.model.residual import Add
from qkv.model.view import View


class PreNormBlock(Block):
    """x + part(norm(x)), twice."""

    def forward(self, x: Tensor, view: View) -> Tensor:
        x = x + self.attention(self.attention_in(x), view)
        return x + self.feed_forward(self.feed_forward_in(x))


class PostNormBlock(Block):
    """norm(x + part(x)), twice."""

    def forward(self, x: Tensor, view: View) -> Tensor:
        x = self.attention_out(self.attention(x, view).add_(x))
        return self.feed_forward_out(self.feed_forward(x).add_(x))


class PreNormCrossBlock(Block):
    """x + part(norm(x)), three times: the second part reads the source."""

    def forward(self, x: Tensor, view: View) -> Tensor:
        x = x + self.attention(self.attention_in(x), view)
        x = x + self.cross(self.cross_in(x), view)
        return x + self.feed_forward(self.feed_forward_in(x))


class PostNormCrossBlock(Block):
    """norm(x + part(x)), three times."""

    def forward(self, x: Tensor, view: View) -> Tensor:
        x = self.attention_out(self.attention(x, view).add_(x))
        x = self.cross_out(self.cross(x, view).add_(x))
        return self.feed_forward_out(self.feed_forward(x).add_(x))


def plain_kind(block: Block) -> type[Block]:
    """The kind of block that does the same in fewer steps; its own kind if there is none."""
    cross = not isinstance(block.cross, Absent)
    names = ("attention", "cross", "feed_forward") if cross else ("attention", "feed_forward")

    def all_are(kind: type[nn.Module], place: str) -> bool:
        return all(type(getattr(block, f"{name}_{place}")) is kind for name in names)

    if type(block) is not Block or not all_are(Add, "join"):
        return type(block)
    if all_are(nn.Identity, "out"):
        return PreNormCrossBlock if cross else PreNormBlock
    if all_are(nn.Identity, "in"):
        return PostNormCrossBlock if cross else PostNormBlock
    return Block
