"""Layers that see only what is near, among or instead of layers that see everything."""

from typing import Annotated, NamedTuple

from pydantic import Field

from qkv.attention import Mask
from qkv.errors import ConfigError
from qkv.model.choice import Choice, Count
from qkv.model.position import Position, Room, Rotary


class Way(NamedTuple):
    """One way to look around: how far, and how positions turn what is compared."""

    window: Mask
    position: Position


class Local(Choice):
    """A position sees itself, `before` positions before it and `after` positions after it.

    layers: those it holds for, all of them if not given. position: how these layers turn queries
    and keys, if otherwise than the rest.
    """

    before: Count
    after: Count = 0
    layers: Annotated[tuple[Count, ...], Field(strict=False)] | None = None  # JSON has lists
    position: Rotary | None = None

    def fit(self, layers: int, room: Room) -> None:
        if self.layers == ():
            raise ConfigError("local layers are named but there is none; leave `local` out")
        for layer in self.layers or ():
            if layer >= layers:
                raise ConfigError(f"local layer {layer} does not exist; there are {layers}")
        if self.position is not None:
            self.position.fit(room)

    def covers(self, layer: int) -> bool:
        return self.layers is None or layer in self.layers

    def way(self, usual: Position, room: Room) -> Way:
        turning = usual if self.position is None else self.position.build(room)
        return Way(Mask.window(self.before, self.after), turning)
