"""Rotary positions as public configs say them, old way and new."""

import math
from typing import Any

from qkv.errors import ConfigError
from qkv.layout.given import Given
from qkv.model import LinearStretch, Rotary, TurnsStretch, Unstretched, WavelengthStretch
from qkv.model.position.rotary import Stretch

ABSENT_BASE = 10_000.0


def rotary(given: Given, layer_type: str | None = None, base: float | None = None) -> Rotary:
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
    return Rotary(
        base=said.positive("rope_theta", usual),
        share=said.positive("partial_rotary_factor", share),
        stretch=_stretch(scaling, given),
    )


def rotary_fields(position: Rotary) -> dict[str, Any]:
    """The same as `rope_parameters`."""
    s = position.stretch
    said: dict[str, Any] = {"rope_type": "default"}
    if isinstance(s, LinearStretch):
        said = {"rope_type": "linear", "factor": s.factor}
    elif isinstance(s, WavelengthStretch):
        said = {
            "rope_type": "llama3",
            "factor": s.factor,
            "low_freq_factor": s.low,
            "high_freq_factor": s.high,
            "original_max_position_embeddings": s.trained_length,
        }
    elif isinstance(s, TurnsStretch):
        said = {
            "rope_type": "yarn",
            "factor": s.factor,
            "beta_fast": s.fast,
            "beta_slow": s.slow,
            "original_max_position_embeddings": s.trained_length,
            "attention_factor": s.length,
        }
    elif not isinstance(s, Unstretched):
        raise ConfigError(f"this layout has no stretch of kind {s.kind}")
    if position.adjacent:
        raise ConfigError("this layout turns halves, not neighbours")
    share = {} if position.share == 1.0 else {"partial_rotary_factor": position.share}
    return {"rope_theta": position.base, **said, **share}


def _stretch(scaling: Given, given: Given) -> Stretch:
    kind = scaling.word("rope_type", scaling.word("type", "default"))
    if kind == "default":
        return Unstretched()
    if kind == "linear":
        return LinearStretch(factor=scaling.positive("factor"))
    length = scaling.size(
        "original_max_position_embeddings",
        given.size("original_max_position_embeddings", given.size("max_position_embeddings")),
    )
    if kind == "llama3":
        return WavelengthStretch(
            factor=scaling.positive("factor"),
            low=scaling.positive("low_freq_factor"),
            high=scaling.positive("high_freq_factor"),
            trained_length=length,
        )
    if kind == "yarn":
        return _yarn(scaling, length)
    raise ConfigError(
        f"{scaling.place}: rope_type {kind!r} cannot be carried; default, linear, llama3 and yarn "
        f"can"
    )


def _yarn(scaling: Given, trained: int) -> TurnsStretch:
    scaling.must_be("truncate", [True], "cannot be carried: bounds are rounded to whole pairs")
    factor = scaling.positive("factor")
    length = scaling.positive("attention_factor") if scaling.has("attention_factor") else None
    if length is None and scaling.has("mscale") and scaling.has("mscale_all_dim"):
        above, below = (_grown(factor, scaling.positive(n)) for n in ("mscale", "mscale_all_dim"))
        length = above / below
    return TurnsStretch(
        factor=factor,
        fast=scaling.positive("beta_fast", 32.0),
        slow=scaling.positive("beta_slow", 1.0),
        trained_length=trained,
        length=length,
    )


def _grown(factor: float, scale: float) -> float:
    return 1.0 if factor <= 1.0 else 0.1 * scale * math.log(factor) + 1.0
