"""Where a block normalises and what it carries past: the paper's way, pre-norm, and the notes' way.

An arrangement gives each part of a block three things: a norm before it, how its result joins
what came in, and a norm after.
"""

from typing import Annotated, ClassVar, Literal, NamedTuple

from pydantic import Field
from torch import Tensor, nn

from qkv.errors import ConfigError
from qkv.model.choice import Choice
from qkv.model.dropout import Dropout
from qkv.model.norm import LayerNorm, RMSNorm


class Add(nn.Module):
    """x + y: what came in is carried past the part. In training, some of y is dropped."""

    def __init__(self, dropout: float) -> None:
        super().__init__()
        self.dropout = Dropout(dropout)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return x + self.dropout(y)


class Replace(Add):
    """y: nothing is carried past the part."""

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return self.dropout(y)


class AddNormed(Add):
    """x + norm(y): what the part adds is brought to size first."""

    def __init__(self, norm: nn.Module, dropout: float) -> None:
        super().__init__(dropout)
        self.norm = norm

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return x + self.dropout(self.norm(y))


class Keep(nn.Module):
    """x: the part is not there, and nothing joins."""

    def forward(self, x: Tensor, y: object) -> Tensor:
        return x


class Joint(NamedTuple):
    """How one part sits in its block."""

    before: nn.Module
    join: nn.Module
    after: nn.Module


class Arrangement(Choice):
    """Around attention, cross attention and feed-forward; all three alike unless it says so."""

    parallel: ClassVar[bool] = False  # attention and feed-forward both read what comes in

    def first_attention(self, norm: LayerNorm | RMSNorm, width: int, dropout: float) -> Joint:
        """Around the attention of the first layer."""
        return self.attention(norm, width, dropout)

    def attention(self, norm: LayerNorm | RMSNorm, width: int, dropout: float) -> Joint:
        raise NotImplementedError

    def cross(self, norm: LayerNorm | RMSNorm, width: int, dropout: float) -> Joint:
        return self.attention(norm, width, dropout)

    def feed_forward(self, norm: LayerNorm | RMSNorm, width: int, dropout: float) -> Joint:
        return self.attention(norm, width, dropout)

    def final(self, norm: LayerNorm | RMSNorm, width: int) -> nn.Module:
        """After the last block."""
        return nn.Identity()

    def norms(self, layers: int, cross: bool) -> int:
        """How many norms a whole stack has."""
        return (3 if cross else 2) * layers


class PostNorm(Arrangement):
    """norm(x + part(x)), as in the paper."""

    kind: Literal["post_norm"] = "post_norm"

    def attention(self, norm: LayerNorm | RMSNorm, width: int, dropout: float) -> Joint:
        return Joint(nn.Identity(), Add(dropout), norm.build(width))


class PreNorm(Arrangement):
    """x + part(norm(x)), and one norm after the last block (Xiong et al. 2020).

    Bare first: the first attention reads the embeddings as they are, as in ModernBERT, where an
    input norm stands right before it.
    """

    kind: Literal["pre_norm"] = "pre_norm"
    bare_first: bool = False

    def first_attention(self, norm: LayerNorm | RMSNorm, width: int, dropout: float) -> Joint:
        usual = self.attention(norm, width, dropout)
        return usual._replace(before=nn.Identity()) if self.bare_first else usual

    def attention(self, norm: LayerNorm | RMSNorm, width: int, dropout: float) -> Joint:
        return Joint(norm.build(width), Add(dropout), nn.Identity())

    def final(self, norm: LayerNorm | RMSNorm, width: int) -> nn.Module:
        return norm.build(width)

    def norms(self, layers: int, cross: bool) -> int:
        return super().norms(layers, cross) + 1 - self.bare_first


class ParallelNorm(Arrangement):
    """x + attention(norm(x)) + feed_forward(norm(x)), each with a norm of its own, and one norm
    after the last block (Black et al. 2022, "GPT-NeoX-20B").
    """

    kind: Literal["parallel_norm"] = "parallel_norm"
    parallel: ClassVar[bool] = True

    def attention(self, norm: LayerNorm | RMSNorm, width: int, dropout: float) -> Joint:
        return Joint(norm.build(width), Add(dropout), nn.Identity())

    def cross(self, norm: LayerNorm | RMSNorm, width: int, dropout: float) -> Joint:
        raise ConfigError("parallel_norm has no place for cross attention; use pre_norm")

    def final(self, norm: LayerNorm | RMSNorm, width: int) -> nn.Module:
        return norm.build(width)

    def norms(self, layers: int, cross: bool) -> int:
        return super().norms(layers, cross) + 1


class SandwichNorm(Arrangement):
    """x + norm(part(norm(x))), and one norm after the last block (Ding et al. 2021)."""

    kind: Literal["sandwich_norm"] = "sandwich_norm"

    def attention(self, norm: LayerNorm | RMSNorm, width: int, dropout: float) -> Joint:
        return Joint(norm.build(width), AddNormed(norm.build(width), dropout), nn.Identity())

    def final(self, norm: LayerNorm | RMSNorm, width: int) -> nn.Module:
        return norm.build(width)

    def norms(self, layers: int, cross: bool) -> int:
        return 2 * super().norms(layers, cross) + 1


class NotesNorm(Arrangement):
    """norm(FFN(A) + A) with A = attention(x), as in the notes: one residual and one norm a block.

    The notes give no formula for a decoder. Here cross attention is added to A, without a norm of
    its own, so that a decoder keeps its own words beside what it reads.
    """

    kind: Literal["notes_norm"] = "notes_norm"

    def attention(self, norm: LayerNorm | RMSNorm, width: int, dropout: float) -> Joint:
        return Joint(nn.Identity(), Replace(dropout), nn.Identity())

    def cross(self, norm: LayerNorm | RMSNorm, width: int, dropout: float) -> Joint:
        return Joint(nn.Identity(), Add(dropout), nn.Identity())

    def feed_forward(self, norm: LayerNorm | RMSNorm, width: int, dropout: float) -> Joint:
        return Joint(nn.Identity(), Add(dropout), norm.build(width))

    def norms(self, layers: int, cross: bool) -> int:
        return layers


ArrangementChoice = Annotated[
    PostNorm | PreNorm | ParallelNorm | SandwichNorm | NotesNorm, Field(discriminator="kind")
]
