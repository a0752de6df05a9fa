"""Rewrites a model in other parts with the same outputs, so that a public format can hold it.

Our presets leave out biases, square a ReLU and subtract means where public models do not. Each of
these has an exact counterpart:

- A missing bias is a bias of zeros.
- max(0, x)² = max(0, x)·x: a gated feed-forward whose two matrices are equal (ReGLU).
- A LayerNorm without a bias is an RMSNorm of a vector whose mean is 0. Everything that is added to
  the residual stream can be centered beforehand, as can queries and keys in each head (Ashkboos et
  al. 2024, "SliceGPT", section 3.1).
- An RMSNorm of a vector that is tiny next to its eps only divides by √eps. A norm after a sublayer
  is cancelled by making the sublayer's last matrix tiny and the norm's weight large.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from qkv.errors import ConfigError
from qkv.model import (
    DecoderOnly,
    EncoderDecoder,
    EncoderOnly,
    LayerNorm,
    Model,
    ModelConfig,
    MultiHead,
    NoPosition,
    NormConfig,
    PreNorm,
    ReGLU,
    ReLU2,
    RMSNorm,
    Rope,
    SandwichNorm,
    Stack,
    skeleton,
)

Weights = dict[str, Tensor]


class Rewrite(NamedTuple):
    """A config with the same outputs as another, and the weights for it.

    description: for the user; None if nothing changes.
    """

    config: ModelConfig
    weights: Callable[[Weights], Weights]
    description: str | None = None

    def apply(self, model: Model) -> Model:
        """The rewritten model."""
        if self.description is None:
            return model
        weights = {name: t.detach().float().cpu() for name, t in model.state_dict().items()}
        result = skeleton(self.config)
        result.load_state_dict(self.weights(weights), strict=True, assign=True)
        return result.eval()


def rewrites(config: ModelConfig) -> Iterator[Rewrite]:
    """The model itself, then every rewrite that applies to it."""
    yield Rewrite(config, lambda weights: weights)
    for rewrite in (_gate_squared_relu, _add_zero_biases, _center_layer_norms, _cancel_post_norms):
        try:
            yield rewrite(config)
        except ConfigError:
            continue


def _gate_squared_relu(config: ModelConfig) -> Rewrite:
    def gated(stack: Stack) -> Stack:
        old = stack.feed_forward
        if not isinstance(old, ReLU2):
            raise ConfigError("there is no squared ReLU")
        return stack.model_copy(update={"feed_forward": ReGLU(width=old.width, bias=old.bias)})

    def weights(old: Weights) -> Weights:
        new = dict(old)
        for name, tensor in old.items():
            if ".feed_forward.up." in name:
                new[name.replace(".up.", ".gate.")] = tensor.clone()
        return new

    description = "squared ReLU is written as a ReLU gate with two equal matrices"
    return Rewrite(_with_stacks(config, gated), weights, description)


def _add_zero_biases(config: ModelConfig) -> Rewrite:
    def biased(stack: Stack) -> Stack:
        attention = _multi_head(stack)
        heads = {
            "bias": True,
            "output_bias": True,
            "qk_norm": _biased_norm(attention.qk_norm),
        }
        parts = {
            "attention": attention.model_copy(update=heads),
            "feed_forward": stack.feed_forward.model_copy(update={"bias": True}),
            "norm": _biased_norm(stack.norm),
            "input_norm": _biased_norm(stack.input_norm),
        }
        return stack.model_copy(update=parts)

    biased_config = _with_stacks(config, biased)
    if biased_config == config:
        raise ConfigError("every bias exists")

    def weights(old: Weights) -> Weights:
        new = dict(old)
        for name, tensor in skeleton(biased_config).state_dict().items():
            if name not in old:
                new[name] = torch.zeros(tensor.shape)
        return new

    return Rewrite(biased_config, weights, "absent biases are written as zeros")


def _center_layer_norms(config: ModelConfig) -> Rewrite:
    if not isinstance(config, DecoderOnly):
        raise ConfigError("it is not a decoder")
    stack = config.decoder
    attention = _multi_head(stack)
    _check_stream(stack)
    parts = {
        "attention": attention.model_copy(update={"qk_norm": _rms_norm(attention.qk_norm)}),
        "norm": _rms_norm(stack.norm),
    }
    changes = {
        "decoder": stack.model_copy(update=parts),
        # Centered embeddings are no longer the matrix of the output.
        "output": config.output.model_copy(update={"tied": False}),
    }
    head_width = attention.key_width(stack.width)

    def weights(old: Weights) -> Weights:
        new = _center_stream(old)
        new.setdefault("output.weight", old["embedding.weight"].clone())
        for name, tensor in old.items():
            module = name.rpartition(".")[0]
            is_qk = module.endswith((".attention.query", ".attention.key"))
            if is_qk and attention.qk_norm is not None:
                by_head = tensor.view(-1, head_width, *tensor.shape[1:])
                new[name] = _centered(by_head, dim=1).view(tensor.shape)
        return new

    description = "LayerNorm is written as RMSNorm, its mean subtracted from the weights before it"
    return Rewrite(config.model_copy(update=changes), weights, description)


# An output of a sublayer times this, squared, is far below any eps; a power of 2 loses no digit.
TINY = 2.0**-30


def _cancel_post_norms(config: ModelConfig) -> Rewrite:
    """A pre-norm encoder–decoder in the form of T5Gemma, with norms after sublayers as well."""
    if not isinstance(config, EncoderDecoder):
        raise ConfigError("it is not an encoder–decoder")

    def sandwich(stack: Stack) -> Stack:
        _check_stream(stack)
        norm = _rms_norm(stack.norm)
        assert norm is not None
        parts = {
            "norm": norm.model_copy(update={"unit_offset": True}),
            "norm_placement": SandwichNorm(),
        }
        return stack.model_copy(update=parts)

    gated = _gate_squared_relu(config)
    new_config = _with_stacks(gated.config, sandwich).model_copy(
        update={
            "source": config.source or config.embedding,
            "output": config.output.model_copy(update={"tied": False}),
        }
    )
    eps = config.decoder.norm.eps

    def weights(old: Weights) -> Weights:
        new = _center_stream(gated.weights(old))
        new.setdefault("output.weight", old["embedding.weight"].clone())
        new.setdefault("source.weight", new["embedding.weight"].clone())
        for name, tensor in new.items():
            if _is_last_of_sublayer(name):
                new[name] = tensor * TINY
            elif name.endswith(("_in.weight", "norm_out.weight")):
                new[name] = tensor - 1.0  # the gain is 1 + weight
        for name, tensor in skeleton(new_config).state_dict().items():
            if name.endswith("_join.norm.weight"):
                new[name] = torch.full(tensor.shape, eps**0.5 / TINY - 1.0)
        return new

    description = (
        "LayerNorm is written as RMSNorm, squared ReLU as a ReLU gate, and the norms after "
        "sublayers get weights that cancel them (load it in float32 or bfloat16, not float16)"
    )
    return Rewrite(new_config, weights, description)


def _check_stream(stack: Stack) -> None:
    """Raises unless the residual stream is a sum of embeddings and sublayers, read by norms."""
    # Learned or sinusoidal positions would be added to the stream as well.
    if not isinstance(stack.position, Rope | NoPosition) or stack.embedding_width is not None:
        raise ConfigError("something else is added to the stream")
    if stack.norm_placement != PreNorm() or stack.input_norm is not None:
        raise ConfigError("a norm stands inside the stream")


def _center_stream(weights: Weights) -> Weights:
    """The same weights, with the mean of everything that is added to the stream subtracted."""
    new = dict(weights)
    for name, tensor in weights.items():
        if name in ("embedding.weight", "source.weight"):
            new[name] = _centered(tensor, dim=1)
        elif _is_last_of_sublayer(name):
            new[name] = _centered(tensor, dim=0)
    return new


def _is_last_of_sublayer(name: str) -> bool:
    module = name.rpartition(".")[0]
    return module.endswith((".attention.output", ".cross.output", ".feed_forward.down"))


def _centered(tensor: Tensor, dim: int) -> Tensor:
    exact = tensor.double()
    return (exact - exact.mean(dim, keepdim=True)).float()


def _with_stacks(config: ModelConfig, change: Callable[[Stack], Stack]) -> ModelConfig:
    """The config with every stack changed."""
    match config:
        case EncoderOnly():
            return config.model_copy(update={"encoder": change(config.encoder)})
        case DecoderOnly():
            return config.model_copy(update={"decoder": change(config.decoder)})
        case EncoderDecoder():
            stacks = {"encoder": change(config.encoder), "decoder": change(config.decoder)}
            return config.model_copy(update=stacks)


def _multi_head(stack: Stack) -> MultiHead:
    if not isinstance(stack.attention, MultiHead):
        raise ConfigError("the attention is not multi_head")
    return stack.attention


def _biased_norm(norm: NormConfig | None) -> NormConfig | None:
    if isinstance(norm, LayerNorm):
        return norm.model_copy(update={"bias": True})
    return norm


def _rms_norm(norm: NormConfig | None) -> NormConfig | None:
    """The norm that a LayerNorm without a bias is on a vector whose mean is 0."""
    if norm is None:
        return None
    if not isinstance(norm, LayerNorm) or norm.bias:
        raise ConfigError("the norm is not a LayerNorm without a bias")
    return RMSNorm(eps=norm.eps)
