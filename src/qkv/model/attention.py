"""Attention with weights: projections to heads, the kernel, and the way back to the model width."""

from torch import Tensor, nn

from qkv.attention import Mask, Steps, attend, join_heads, reference
from qkv.errors import ShapeError
from qkv.model.view import View


class Attention(nn.Module):
    """Self-attention: queries, keys and values all come from x."""

    def __init__(
        self,
        query: nn.Module,
        key: nn.Module,
        value: nn.Module,
        output: nn.Module,
        query_norm: nn.Module,
        key_norm: nn.Module,
        scale: float | None,
        cap: float | None = None,
    ) -> None:
        super().__init__()
        self.query, self.key, self.value = query, key, value
        self.query_norm, self.key_norm = query_norm, key_norm
        self.mix = Mix(scale, cap)
        self.output = output

    def forward(self, x: Tensor, view: View) -> Tensor:
        q = view.rotation.turn(self.query_norm(self.query(x)))  # (B, H, T, E)
        k = view.rotation.turn(self.key_norm(self.key(x)))  # (B, K, T, E)
        k, v = view.slot.append(k, self.value(x))  # (B, K, S, E)
        return self.output(join_heads(self.mix(q, k, v, view.mask)))


class CrossAttention(Attention):
    """Cross attention: queries come from x, keys and values from the encoder's output."""

    def forward(self, x: Tensor, view: View) -> Tensor:
        q = self.query_norm(self.query(x))  # (B, H, T, E)
        k, v = view.cross_slot.once(_present(view.memory), self._keys_and_values)
        return self.output(join_heads(self.mix(q, k, v, view.memory_mask)))

    def _keys_and_values(self, memory: Tensor) -> tuple[Tensor, Tensor]:
        return self.key_norm(self.key(memory)), self.value(memory)


class Mix(nn.Module):
    """softmax(Q·Kᵀ·scale + mask)·V, fused; a hook on `steps` makes it show every intermediate."""

    def __init__(self, scale: float | None, cap: float | None = None) -> None:
        super().__init__()
        self.scale, self.cap = scale, cap
        self.steps = Tap()

    def forward(self, q: Tensor, k: Tensor, v: Tensor, mask: Mask) -> Tensor:
        if self.steps.watched:
            return self.steps(reference(q, k, v, mask, self.scale, self.cap)).output
        return attend(q, k, v, mask, self.scale, self.cap)


class Tap(nn.Module):
    """Passes the steps on. Whoever hooks it sees them, and may put others in their place."""

    @property
    def watched(self) -> bool:
        return bool(self._forward_hooks or self._forward_pre_hooks)

    def forward(self, steps: Steps) -> Steps:
        return steps


def _present(memory: Tensor | None) -> Tensor:
    if memory is None:
        raise ShapeError("a decoder with cross attention needs the encoder's output as memory")
    return memory
