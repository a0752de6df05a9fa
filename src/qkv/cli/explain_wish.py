"""What is to be shown of a model: the options of `qkv explain --model`, and the edits they name."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from qkv.errors import UsageError

if TYPE_CHECKING:
    from qkv.explain.glass_box import GlassBox
    from qkv.explain.trace import Edit


@dataclass(frozen=True)
class Wish:
    """What is to be shown of a model."""

    model: Path
    text: str
    target: str | None
    layer: int | None
    head: int | None
    cross: bool
    side: str
    steps: tuple[str, ...]
    cell: tuple[str, str] | None
    top: int
    precision: int
    format: str
    why: bool
    label: str | None
    token: str | None
    against: str | None
    no_scale: bool
    no_mask: bool
    no_position: bool
    heads_off: tuple[str, ...]
    replaced: tuple[str, ...]
    output: Path | None
    tensor: str | None
    width: int


def edits_of(box: "GlassBox", wish: Wish) -> list["Edit"]:
    """What is changed, in the order of the options."""
    from qkv.explain.trace import NoMask, NoPosition, NoScale

    kinds = {NoScale: wish.no_scale, NoMask: wish.no_mask, NoPosition: wish.no_position}
    found: list[Edit] = [kind() for kind, asked in kinds.items() if asked]
    found += [_head_off(box, wish, written) for written in wish.heads_off]
    return found + [_replaced(box, written) for written in wish.replaced]


def _head_off(box: "GlassBox", wish: Wish, written: str) -> "Edit":
    from qkv.explain.trace import HeadOff

    layer, dot, head = written.partition(".")
    if not (dot and layer.isdecimal() and head.isdecimal()):
        raise UsageError(f"--head-off {written} should be LAYER.HEAD, as in 0.3")
    stack = wish.side or ("decoder" if hasattr(box.model.config, "decoder") else "encoder")
    return HeadOff(stack, int(layer), int(head), "cross" if wish.cross else "attention")


def _replaced(box: "GlassBox", written: str) -> "Edit":
    from qkv.explain.trace import TokenReplaced
    from qkv.model import Translator

    position, equals, token = written.partition("=")
    if not equals or not position.removeprefix("-").isdecimal():
        raise UsageError(f"--replace {written} should be POSITION=TOKEN, as in 2=cat")
    ids = box.tokenizer.encode(token)
    if len(ids) != 1:
        raise UsageError(
            f"--replace puts one token in the place of another, but “{token}” is {len(ids)}; "
            "explain the changed text instead"
        )
    sequence = "source" if isinstance(box.model, Translator) else "text"
    return TokenReplaced(int(position), ids[0], token, sequence)
