"""What the layouts of decoders share: their words for sizes, windows and a tied output."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from qkv.errors import ConfigError
from qkv.layout.expect import expect_rotary
from qkv.layout.given import Given
from qkv.layout.rotary import rotary_fields
from qkv.model import DecoderOnly, Local, NextToken, Rotary, Stack
from qkv.model.family import Config

SLIDING, FULL = "sliding_attention", "full_attention"
ABSENT_WINDOW = 4096


def expect_whole_heads(position: Rotary, given: Given) -> Rotary:
    """Rotary positions that turn all of a head, where a layout's programs ignore a share."""
    if position.share != 1.0:
        raise ConfigError(
            f"{given.place}: partial_rotary_factor is {position.share}, but models of type "
            f"{given.word('model_type')} turn whole heads"
        )
    return position


def grouped(given: Given, heads: int) -> int | None:
    """Key/value heads, if there are fewer than heads."""
    shared = given.size("num_key_value_heads", heads)
    return None if shared == heads else shared


def head_width(given: Given, heads: int, absent: int | None = None) -> int | None:
    """The width of a head, if it is not the model's width shared out."""
    width = given.size("hidden_size")
    own = given.size("head_dim", absent or width // heads or 1)
    return None if own * heads == width else own


def window_size(given: Given) -> int | None:
    """How many positions a window has; none if the field says null, which is not to be absent."""
    if given.fields.get("sliding_window", ABSENT_WINDOW) is None:
        return None
    return given.size("sliding_window", ABSENT_WINDOW)


def sliding_layers(given: Given, layers: int, usual: Callable[[int], bool]) -> Sequence[int]:
    """The layers with a window: those that `layer_types` names, or for which `usual` holds."""
    types = given.items("layer_types")
    if not types:
        return [i for i in range(layers) if usual(i)]
    if len(types) != layers or not all(kind in (SLIDING, FULL) for kind in types):
        raise given.wrong("layer_types", list(types), f"{SLIDING} or {FULL} for each layer")
    return [i for i, kind in enumerate(types) if kind == SLIDING]


def window(
    size: int | None, near: Sequence[int], layers: int, position: Rotary | None = None
) -> Local | None:
    """Layers that see themselves and what came right before, `size` positions in all."""
    if size is None or not near:
        return None
    some = None if len(near) == layers else tuple(near)
    return Local(before=size - 1, layers=some, position=position)


def layer_types(stack: Stack) -> list[str]:
    """The type of each layer, as `layer_types` has it."""
    local = stack.local
    return [FULL if local is None or not local.covers(i) else SLIDING for i in range(stack.layers)]


def decoder_fields(config: DecoderOnly) -> dict[str, Any]:
    """What all configs of Llama's style name alike."""
    stack, heads = config.decoder, config.decoder.attention
    return {
        "vocab_size": config.embedding.vocabulary,
        "hidden_size": stack.width,
        "num_hidden_layers": stack.layers,
        "num_attention_heads": heads.heads,
        "num_key_value_heads": heads.shared_heads,
        "head_dim": heads.key_width(stack.width),
        "intermediate_size": stack.feed_forward.width,
        "max_position_embeddings": config.length,
        "rms_norm_eps": stack.norm.eps,
        "rope_parameters": rotary_fields(expect_rotary(stack)),
        "tie_word_embeddings": is_tied(config),
    }


def is_tied(config: Config) -> bool:
    return isinstance(config.output, NextToken) and config.output.tied


def tied_head(config: Config, table: str) -> Mapping[str, str]:
    """A tied output's matrix is the table under a second name."""
    return {"lm_head.weight": table} if is_tied(config) else {}
