"""RoPE settings and activation names of config.json, in the old and the new spelling."""

import math
from typing import Any

from qkv.checkpoints.config_reader import ConfigReader
from qkv.errors import ConfigError
from qkv.model import (
    GEGLU,
    GELU,
    ActivationName,
    LinearScaling,
    Llama3Scaling,
    NoScaling,
    ReGLU,
    ReLU,
    ReLU2,
    Rope,
    SiLU,
    SwiGLU,
    YarnScaling,
)
from qkv.model.position import RopeScaling

DEFAULT_BASE = 10_000.0

# The public name of an activation, and the feed-forward with its arguments that it stands for.
FEED_FORWARDS: dict[str, tuple[Any, dict[str, bool]]] = {
    "gelu": (GELU, {"tanh": False}),
    "gelu_new": (GELU, {"tanh": True}),
    "gelu_pytorch_tanh": (GELU, {"tanh": True}),
    "gelu_fast": (GELU, {"tanh": True}),
    "relu": (ReLU, {}),
    "relu2": (ReLU2, {}),
    "silu": (SiLU, {}),
    "swish": (SiLU, {}),
}

GATED_FEED_FORWARDS: dict[str, tuple[Any, dict[str, bool]]] = {
    "gelu": (GEGLU, {"tanh": False}),
    "gelu_new": (GEGLU, {"tanh": True}),
    "gelu_pytorch_tanh": (GEGLU, {"tanh": True}),
    "relu": (ReGLU, {}),
    "silu": (SwiGLU, {}),
    "swish": (SwiGLU, {}),
}

# Activations inside an output head.
ACTIVATIONS: dict[str, ActivationName] = {
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "relu": "relu",
    "silu": "silu",
    "swish": "silu",
    "tanh": "tanh",
}


def read_rope(
    reader: ConfigReader, layer_type: str | None = None, base: float | None = None
) -> Rope:
    """Rotary positions from `rope_parameters`, or from the older separate fields.

    Those are `rope_theta`, `rope_scaling` and `partial_rotary_factor`.

    layer_type: use the parameters of this type of layer, where the config has one set per type.
    """
    parameters = reader.section("rope_parameters")
    if layer_type is not None and isinstance(parameters.fields.get(layer_type), dict):
        parameters = parameters.section(layer_type)
    scaling = reader.section("rope_scaling")
    if parameters.fields:
        if scaling.fields and dict(parameters.fields) != dict(scaling.fields):
            raise ConfigError(
                f"{reader.location}: rope_parameters and rope_scaling contradict each other; "
                f"remove one of them"
            )
        scaling = parameters
    theta = reader.positive("rope_theta", base or DEFAULT_BASE)
    fraction = reader.positive("partial_rotary_factor", reader.positive("rotary_pct", 1.0))
    return Rope(
        base=parameters.positive("rope_theta", theta),
        fraction=parameters.positive("partial_rotary_factor", fraction),
        scaling=_read_scaling(scaling, reader),
    )


def rope_fields(position: Rope) -> dict[str, Any]:
    """The `rope_parameters` for these positions."""
    if position.interleaved:
        raise ConfigError(
            "interleaved RoPE cannot be exported to this format, which rotates the first half of "
            "a head with the second"
        )
    fields: dict[str, Any] = {"rope_theta": position.base, **_scaling_fields(position.scaling)}
    if position.fraction != 1.0:
        fields["partial_rotary_factor"] = position.fraction
    return fields


def _scaling_fields(scaling: RopeScaling) -> dict[str, Any]:
    match scaling:
        case NoScaling():
            return {"rope_type": "default"}
        case LinearScaling():
            return {"rope_type": "linear", "factor": scaling.factor}
        case Llama3Scaling():
            return {
                "rope_type": "llama3",
                "factor": scaling.factor,
                "low_freq_factor": scaling.low_freq_factor,
                "high_freq_factor": scaling.high_freq_factor,
                "original_max_position_embeddings": scaling.trained_length,
            }
        case YarnScaling():
            return {
                "rope_type": "yarn",
                "factor": scaling.factor,
                "beta_fast": scaling.beta_fast,
                "beta_slow": scaling.beta_slow,
                "original_max_position_embeddings": scaling.trained_length,
                "attention_factor": scaling.attention_factor,
            }
        case _:
            raise ConfigError(f"this format has no RoPE scaling of kind {scaling.kind}")


def _read_scaling(scaling: ConfigReader, reader: ConfigReader) -> RopeScaling:
    # `type` is the older name of `rope_type`.
    rope_type = scaling.string("rope_type", scaling.string("type", "default"))
    if rope_type == "default":
        return NoScaling()
    if rope_type == "linear":
        return LinearScaling(factor=scaling.positive("factor"))
    length = scaling.size(
        "original_max_position_embeddings",
        reader.size("original_max_position_embeddings", reader.size("max_position_embeddings")),
    )
    if rope_type == "llama3":
        return Llama3Scaling(
            factor=scaling.positive("factor"),
            low_freq_factor=scaling.positive("low_freq_factor"),
            high_freq_factor=scaling.positive("high_freq_factor"),
            trained_length=length,
        )
    if rope_type == "yarn":
        return _read_yarn(scaling, length)
    raise ConfigError(
        f"{scaling.location}: rope_type {rope_type!r} is not supported; supported are default, "
        f"linear, llama3 and yarn"
    )


def _read_yarn(scaling: ConfigReader, trained_length: int) -> YarnScaling:
    """YaRN (Peng et al. 2023); `mscale` and `mscale_all_dim` are DeepSeek's additions."""
    scaling.require(
        "truncate", [True], "is not supported: the correction range is rounded to whole pairs"
    )
    factor = scaling.positive("factor")
    attention_factor = None
    if scaling.has("attention_factor"):
        attention_factor = scaling.positive("attention_factor")
    elif scaling.has("mscale") and scaling.has("mscale_all_dim"):
        numerator = _mscale(factor, scaling.positive("mscale"))
        denominator = _mscale(factor, scaling.positive("mscale_all_dim"))
        attention_factor = numerator / denominator
    return YarnScaling(
        factor=factor,
        beta_fast=scaling.positive("beta_fast", 32.0),
        beta_slow=scaling.positive("beta_slow", 1.0),
        trained_length=trained_length,
        attention_factor=attention_factor,
    )


def _mscale(factor: float, scale: float) -> float:
    if factor <= 1.0:
        return 1.0
    return 0.1 * scale * math.log(factor) + 1.0


def read_feed_forward(
    reader: ConfigReader,
    name: str,
    width: int,
    bias: bool,
    gated: bool = False,
    default: str = "gelu",
) -> Any:
    """The feed-forward whose activation is named by the field `name`."""
    choices = GATED_FEED_FORWARDS if gated else FEED_FORWARDS
    kind, arguments = reader.one_of(name, choices, default)
    return kind(width=width, bias=bias, **arguments)


def activation_name(feed_forward: Any, gated: bool = False) -> str:
    """The public name of a feed-forward's activation."""
    choices = GATED_FEED_FORWARDS if gated else FEED_FORWARDS
    for name, (kind, arguments) in choices.items():
        if type(feed_forward) is not kind:
            continue
        if all(getattr(feed_forward, key) == value for key, value in arguments.items()):
            return name
    raise ConfigError(f"this format has no feed-forward of kind {feed_forward.kind}")


def is_gated(feed_forward: Any) -> bool:
    """Whether a feed-forward has a gate, as SwiGLU has."""
    return any(type(feed_forward) is kind for kind, _ in GATED_FEED_FORWARDS.values())


def head_activation_name(activation: ActivationName) -> str:
    """The public name of an activation in an output head."""
    return next(public for public, ours in ACTIVATIONS.items() if ours == activation)
