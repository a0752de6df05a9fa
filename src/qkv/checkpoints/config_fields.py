"""Rotary positions as public configs say them, old way and new."""

import math
from typing import Any

from qkv.checkpoints.format import Given
from qkv.errors import ConfigError
from qkv.model import (
    GEGLU,
    GELU,
    Classify,
    EncoderOnly,
    LinearScaling,
    Llama3Scaling,
    NoScaling,
    ReLU,
    ReLU2,
    Rope,
    SiLU,
    SwiGLU,
    TextVector,
    YarnScaling,
)
from qkv.model.build import ModelConfig
from qkv.model.config import Config
from qkv.model.output import ActivationName, Output
from qkv.model.position.rope import RopeScaling
from qkv.model.stack import Stack

# FOLDED layout/activations: The public names of activations, and the feed-forward each one
#   makes.
# FOLDED layout/options: What a config says, flat and for people: `attention heads: 8`, `rotary
#   base: 10000`.

ABSENT_BASE = 10_000.0


def rotary(given: Given, layer_type: str | None = None, base: float | None = None) -> Rope:
    """`rope_theta`, `rope_scaling` and `partial_rotary_factor`, or all in `rope_parameters`.

    layer_type: where there are parameters for each type of layer, those of this one.
    """
    said = given.inner("rope_parameters")
    if layer_type is not None and isinstance(said.fields.get(layer_type), dict):
        said = said.inner(layer_type)
    scaling = given.inner("rope_scaling")
    if said.fields and scaling.fields and dict(said.fields) != dict(scaling.fields):
        raise ConfigError(
            f"{given.place}: rope_parameters and rope_scaling say different things; leave one out"
        )
    scaling = said if said.fields else scaling
    usual = given.positive("rope_theta", base or ABSENT_BASE)
    share = given.positive("partial_rotary_factor", given.positive("rotary_pct", 1.0))
    return Rope(
        base=said.positive("rope_theta", usual),
        fraction=said.positive("partial_rotary_factor", share),
        scaling=_stretch(scaling, given),
    )


def rotary_fields(position: Rope) -> dict[str, Any]:
    """The same as `rope_parameters`."""
    s = position.scaling
    said: dict[str, Any] = {"rope_type": "default"}
    if isinstance(s, LinearScaling):
        said = {"rope_type": "linear", "factor": s.factor}
    elif isinstance(s, Llama3Scaling):
        said = {
            "rope_type": "llama3",
            "factor": s.factor,
            "low_freq_factor": s.low_freq_factor,
            "high_freq_factor": s.high_freq_factor,
            "original_max_position_embeddings": s.trained_length,
        }
    elif isinstance(s, YarnScaling):
        said = {
            "rope_type": "yarn",
            "factor": s.factor,
            "beta_fast": s.beta_fast,
            "beta_slow": s.beta_slow,
            "original_max_position_embeddings": s.trained_length,
            "attention_factor": s.attention_factor,
        }
    elif not isinstance(s, NoScaling):
        raise ConfigError(f"this layout has no RoPE scaling of kind {s.kind}")
    if position.interleaved:
        raise ConfigError("this layout turns halves, not neighbours")
    if position.fraction == 1.0:
        share = {}
    else:
        share = {"partial_rotary_factor": position.fraction}
    return {"rope_theta": position.base, **said, **share}


def _stretch(scaling: Given, given: Given) -> RopeScaling:
    kind = scaling.word("rope_type", scaling.word("type", "default"))
    if kind == "default":
        return NoScaling()
    if kind == "linear":
        return LinearScaling(factor=scaling.positive("factor"))
    length = scaling.size(
        "original_max_position_embeddings",
        given.size("original_max_position_embeddings", given.size("max_position_embeddings")),
    )
    if kind == "llama3":
        return Llama3Scaling(
            factor=scaling.positive("factor"),
            low_freq_factor=scaling.positive("low_freq_factor"),
            high_freq_factor=scaling.positive("high_freq_factor"),
            trained_length=length,
        )
    if kind == "yarn":
        return _yarn(scaling, length)
    raise ConfigError(
        f"{scaling.place}: rope_type {kind!r} cannot be carried; default, linear, llama3 and yarn "
        f"can"
    )


def _yarn(scaling: Given, trained: int) -> YarnScaling:
    scaling.must_be("truncate", [True], "cannot be carried: bounds are rounded to whole pairs")
    factor = scaling.positive("factor")
    if scaling.has("attention_factor"):
        length = scaling.positive("attention_factor")
    else:
        length = None
    if length is None and scaling.has("mscale") and scaling.has("mscale_all_dim"):
        above, below = (_grown(factor, scaling.positive(n)) for n in ("mscale", "mscale_all_dim"))
        length = above / below
    return YarnScaling(
        factor=factor,
        beta_fast=scaling.positive("beta_fast", 32.0),
        beta_slow=scaling.positive("beta_slow", 1.0),
        trained_length=trained,
        attention_factor=length,
    )


def _grown(factor: float, scale: float) -> float:
    if factor <= 1.0:
        return 1.0
    return 0.1 * scale * math.log(factor) + 1.0


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

BENT: dict[str, ActivationName] = {
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


def bend_name(bend: ActivationName) -> str:
    return next(name for name, ours in BENT.items() if ours == bend)


def options_of(config: ModelConfig) -> dict[str, Any]:
    """The sizes, and each part with what it differs in from its defaults."""
    found: dict[str, Any] = {
        "family": config.kind.replace("_", "-"),
        "parameters": config.parameters(),
        "vocabulary": config.embedding.vocabulary,
        "length": config.length,
    }
    for name in ("encoder", "decoder"):
        stack = getattr(config, name, None)
        if isinstance(stack, Stack):
            found |= {f"{name}_{part}": said for part, said in _stack(stack).items()}
    if isinstance(config, EncoderOnly) and config.context_length < config.length:
        found["reads"] = config.context_length
    found["output"] = _answer(config.output)
    return found


def _answer(output: Output) -> str:
    """What it answers with; the usual is said too, as it matters most."""
    if isinstance(output, TextVector):
        if output.normalize:
            length = "of length 1"
        else:
            length = "of any length"
        if output.dense:
            through = ", through the pooler"
        else:
            through = ""
        return f"text vector {length}, from the {output.pooling.kind}{through}"
    if isinstance(output, Classify):
        return f"labels {', '.join(output.labels[:8])}{' …' if len(output.labels) > 8 else ''}"
    return f"{say(output)}, {'tied' if output.tied else 'with a matrix of its own'}"


def _stack(stack: Stack) -> dict[str, str]:
    if stack.unique_layers is None:
        shared = ""
    else:
        shared = f" on {stack.unique_layers} blocks"
    told = {"shape": f"{stack.layers} layers{shared}, width {stack.width}"}
    for part in ("attention", "feed_forward", "position", "norm", "norm_placement", "local"):
        choice = getattr(stack, part)
        if choice is not None:
            told[part] = say(choice)
    return told


def say(choice: Config) -> str:
    """Its kind, and every field that is not as usual."""
    told = []
    for name, field in type(choice).model_fields.items():
        value = getattr(choice, name)
        if name == "kind" or value == field.default:
            continue
        if isinstance(value, Config):
            shown = f"({say(value)})"
        else:
            shown = _short(value)
        told.append(f"{name.replace('_', ' ')} {shown}")
    kind = str(getattr(choice, "kind", "")).replace("_", " ")
    if told:
        return f"{kind}: {', '.join(told)}".removeprefix(": ")
    return kind


def _short(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, tuple):
        shown = " ".join(map(str, value[:6]))
        if len(value) > 6:
            return f"{shown} … ({len(value)})"
        return shown
    if isinstance(value, float):
        return f"{value:g}"
    return str(value)
