"""The public names of activations, and the feed-forward each one makes."""

from typing import Any

from qkv.errors import ConfigError
from qkv.layout.given import Given
from qkv.model import GEGLU, GELU, ReLU, ReLU2, SiLU, SwiGLU
from qkv.model.output import Bend

PLAIN: dict[str, tuple[Any, dict[str, bool]]] = {
    "gelu": (GELU, {"tanh": False}),
    "gelu_new": (GELU, {"tanh": True}),
    "gelu_pytorch_tanh": (GELU, {"tanh": True}),
    "gelu_fast": (GELU, {"tanh": True}),
    "relu": (ReLU, {}),
    "relu2": (ReLU2, {}),
    "silu": (SiLU, {}),
    "swish": (SiLU, {}),
}
GATED: dict[str, tuple[Any, dict[str, bool]]] = {
    "gelu": (GEGLU, {"tanh": False}),
    "gelu_new": (GEGLU, {"tanh": True}),
    "gelu_pytorch_tanh": (GEGLU, {"tanh": True}),
    "silu": (SwiGLU, {}),
    "swish": (SwiGLU, {}),
}
BENT: dict[str, Bend] = {
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "relu": "relu",
    "silu": "silu",
    "swish": "silu",
    "tanh": "tanh",
}


def feed_forward(
    given: Given, name: str, width: int, bias: bool, gated: bool = False, absent: str = "gelu"
) -> Any:
    """The feed-forward part whose activation the field of that name names."""
    choice, fields = given.one_of(name, GATED if gated else PLAIN, absent)
    return choice(width=width, bias=bias, **fields)


def activation_name(choice: Any, gated: bool = False) -> str:
    """The public name of the activation in a feed-forward of ours."""
    for name, (kind, fields) in (GATED if gated else PLAIN).items():
        if type(choice) is kind and all(getattr(choice, k) == v for k, v in fields.items()):
            return name
    raise ConfigError(f"this layout has no feed-forward of kind {choice.kind}")


def bend_name(bend: Bend) -> str:
    return next(name for name, ours in BENT.items() if ours == bend)
