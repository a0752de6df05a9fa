"""Attention and the layers of encoders and decoders equal torch.nn's, forward and backward."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from qkv.attention import Mask
from qkv.model import (
    GELU,
    Block,
    LayerNorm,
    MultiHead,
    NoPosition,
    PostNorm,
    PreNorm,
    ReLU,
    Stack,
    View,
)

B, T, S, D, H, F = 3, 7, 11, 30, 6, 37
EPS = 1e-3  # large enough to be seen where it is forgotten
TOLERANCE = 1e-11

OWN_LENGTHS = torch.tensor([T, 4, 1])
MEMORY_LENGTHS = torch.tensor([2, S, 1])

# Ours say who may be seen; torch's say who may not.
OURS = {
    "sees all": Mask.full(),
    "causal": Mask.causal(),
    "padded": Mask.padding(OWN_LENGTHS),
    "causal and padded": Mask.causal() & Mask.padding(OWN_LENGTHS),
}
LATER = torch.ones(T, T, dtype=torch.bool).triu(diagonal=1)
PADDING = torch.arange(T) >= OWN_LENGTHS[:, None]
MEMORY_PADDING = torch.arange(S) >= MEMORY_LENGTHS[:, None]
THEIRS = {
    "sees all": (None, None),
    "causal": (LATER, None),
    "padded": (None, PADDING),
    "causal and padded": (LATER, PADDING),
}
MASKS = pytest.mark.parametrize("mask", OURS)
ORDERS = pytest.mark.parametrize("order", ["post", "pre"])
BENDS = pytest.mark.parametrize("bend", ["relu", "gelu"])
BIASES = pytest.mark.parametrize("bias", [True, False], ids=["bias", "no bias"])


def drawn(*shape: int, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64)


def leaf(*shape: int, seed: int) -> Tensor:
    return drawn(*shape, seed=seed).requires_grad_()


def shaken(theirs: nn.Module) -> nn.Module:
    """In float64 and with weights of our own drawing: no norm stays at 1, no bias at 0."""
    theirs = theirs.double()
    with torch.no_grad():
        for seed, parameter in enumerate(theirs.parameters()):
            parameter.copy_(0.3 * drawn(*parameter.shape, seed=seed))
    return theirs


def attention_names(theirs: dict[str, Tensor], their_prefix: str, prefix: str) -> dict[str, Tensor]:
    """torch keeps three projections in one matrix, queries first; ours have a name each."""
    named = {}
    for kind in ("weight", "bias"):
        if f"{their_prefix}in_proj_{kind}" in theirs:
            thirds = theirs[f"{their_prefix}in_proj_{kind}"].chunk(3)
            for name, third in zip(("query", "key", "value"), thirds, strict=True):
                named[f"{prefix}{name}.{kind}"] = third
            named[f"{prefix}output.{kind}"] = theirs[f"{their_prefix}out_proj.{kind}"]
    return named


def block_names(theirs: dict[str, Tensor], order: str, cross: bool) -> dict[str, Tensor]:
    """A torch layer's tensors by our names."""
    named = attention_names(theirs, "self_attn.", "attention.")
    parts = ["attention", "feed_forward"]
    if cross:
        named |= attention_names(theirs, "multihead_attn.", "cross.")
        parts.insert(1, "cross")
    place = {"post": "out", "pre": "in"}[order]
    modules = {f"norm{i}": f"{part}_{place}" for i, part in enumerate(parts, start=1)}
    modules |= {"linear1": "feed_forward.up", "linear2": "feed_forward.down"}
    for module, ours in modules.items():
        for kind in ("weight", "bias"):
            if f"{module}.{kind}" in theirs:
                named[f"{ours}.{kind}"] = theirs[f"{module}.{kind}"]
    return named


def assert_equal_forward_and_backward(
    ours: nn.Module,
    theirs: nn.Module,
    names: Callable[[dict[str, Tensor]], dict[str, Tensor]],
    run_ours: Callable[..., Tensor],
    run_theirs: Callable[..., Tensor],
    *sizes: tuple[int, ...],
) -> None:
    """One set of weights, equal inputs of these sizes: equal outputs and equal gradients."""
    ours.load_state_dict(names(theirs.state_dict()))  # strict: every name must be met
    our_inputs = [leaf(*size, seed=i) for i, size in enumerate(sizes)]
    their_inputs = [leaf(*size, seed=i) for i, size in enumerate(sizes)]
    our_out, their_out = run_ours(*our_inputs), run_theirs(*their_inputs)
    close(our_out, their_out, "the output")

    upstream = drawn(*our_out.shape, seed=99)
    our_out.backward(upstream)
    their_out.backward(upstream)
    for i, (our_input, their_input) in enumerate(zip(our_inputs, their_inputs, strict=True)):
        close(our_input.grad, their_input.grad, f"the gradient of input {i}")
    gradients = names({name: p.grad for name, p in theirs.named_parameters()})
    assert set(gradients) == {name for name, _ in ours.named_parameters()}
    for name, parameter in ours.named_parameters():
        close(parameter.grad, gradients[name], f"the gradient of {name}")


def close(ours: Tensor, theirs: Tensor, what: str) -> None:
    torch.testing.assert_close(
        ours, theirs, rtol=TOLERANCE, atol=TOLERANCE, msg=lambda said: f"{what}: {said}"
    )


@MASKS
@BIASES
def test_self_attention_equals_torch(mask: str, bias: bool):
    ours = MultiHead(heads=H, bias=bias, output_bias=bias).build(D).double()
    theirs = shaken(nn.MultiheadAttention(D, H, bias=bias, batch_first=True))
    later, padding = THEIRS[mask]

    def run_theirs(x: Tensor) -> Tensor:
        return theirs(x, x, x, key_padding_mask=padding, attn_mask=later, need_weights=False)[0]

    assert_equal_forward_and_backward(
        ours,
        theirs,
        lambda tensors: attention_names(tensors, "", ""),
        lambda x: ours(x, View(mask=OURS[mask])),
        run_theirs,
        (B, T, D),
    )


@BIASES
def test_cross_attention_equals_torch(bias: bool):
    ours = MultiHead(heads=H, bias=bias, output_bias=bias).build(D, cross=True).double()
    theirs = shaken(nn.MultiheadAttention(D, H, bias=bias, batch_first=True))

    def run_ours(x: Tensor, memory: Tensor) -> Tensor:
        return ours(x, View(memory=memory, memory_mask=Mask.padding(MEMORY_LENGTHS)))

    def run_theirs(x: Tensor, memory: Tensor) -> Tensor:
        return theirs(x, memory, memory, key_padding_mask=MEMORY_PADDING, need_weights=False)[0]

    assert_equal_forward_and_backward(
        ours,
        theirs,
        lambda tensors: attention_names(tensors, "", ""),
        run_ours,
        run_theirs,
        (B, T, D),
        (B, S, D),
    )


@MASKS
def test_the_attention_weights_of_each_head_equal_torch(mask: str):
    ours = MultiHead(heads=H).build(D).double()
    theirs = shaken(nn.MultiheadAttention(D, H, batch_first=True))
    ours.load_state_dict(attention_names(theirs.state_dict(), "", ""))
    x, (later, padding) = drawn(B, T, D, seed=0), THEIRS[mask]
    caught = []
    ours.core.hook_point.register_forward_hook(lambda module, args, steps: caught.append(steps))

    ours(x, View(mask=OURS[mask]))
    weights = theirs(
        x, x, x, key_padding_mask=padding, attn_mask=later, average_attn_weights=False
    )[1]
    close(caught[0].weights, weights, "the weights")


def block(order: str, bend: str, bias: bool = True, cross: bool = False) -> Block:
    """The one block of a stack that torch's layers have a counterpart of."""
    stack = Stack(
        layers=1,
        width=D,
        attention=MultiHead(heads=H, bias=bias, output_bias=bias),
        feed_forward={"relu": ReLU, "gelu": GELU}[bend](width=F, bias=bias),
        position=NoPosition(),
        norm=LayerNorm(eps=EPS, bias=bias),
        norm_placement={"post": PostNorm(), "pre": PreNorm()}[order],
    )
    return next(stack.build(T, cross).double().blocks())


def torch_options(order: str, bend: str, bias: bool = True) -> dict[str, object]:
    return {
        "dim_feedforward": F,
        "dropout": 0.0,
        "activation": bend,
        "layer_norm_eps": EPS,
        "batch_first": True,
        "norm_first": order == "pre",
        "bias": bias,
    }


@ORDERS
@BENDS
@MASKS
def test_an_encoder_layer_equals_torch(order: str, bend: str, mask: str):
    ours = block(order, bend)
    theirs = shaken(nn.TransformerEncoderLayer(D, H, **torch_options(order, bend)))
    later, padding = THEIRS[mask]

    assert_equal_forward_and_backward(
        ours,
        theirs,
        lambda tensors: block_names(tensors, order, cross=False),
        lambda x: ours(x, View(mask=OURS[mask])),
        lambda x: theirs(x, src_mask=later, src_key_padding_mask=padding),
        (B, T, D),
    )


@ORDERS
@BENDS
@MASKS
def test_a_decoder_layer_equals_torch(order: str, bend: str, mask: str):
    ours = block(order, bend, cross=True)
    theirs = shaken(nn.TransformerDecoderLayer(D, H, **torch_options(order, bend)))
    later, padding = THEIRS[mask]

    def run_ours(x: Tensor, memory: Tensor) -> Tensor:
        reads = Mask.padding(MEMORY_LENGTHS)
        return ours(x, View(mask=OURS[mask], memory=memory, memory_mask=reads))

    def run_theirs(x: Tensor, memory: Tensor) -> Tensor:
        return theirs(
            x,
            memory,
            tgt_mask=later,
            tgt_key_padding_mask=padding,
            memory_key_padding_mask=MEMORY_PADDING,
        )

    assert_equal_forward_and_backward(
        ours,
        theirs,
        lambda tensors: block_names(tensors, order, cross=True),
        run_ours,
        run_theirs,
        (B, T, D),
        (B, S, D),
    )


@ORDERS
def test_a_layer_without_biases_equals_torch(order: str):
    ours = block(order, "gelu", bias=False)
    theirs = shaken(nn.TransformerEncoderLayer(D, H, **torch_options(order, "gelu", bias=False)))

    assert_equal_forward_and_backward(
        ours,
        theirs,
        lambda tensors: block_names(tensors, order, cross=False),
        lambda x: ours(x, View(mask=OURS["causal"])),
        lambda x: theirs(x, src_mask=LATER),
        (B, T, D),
    )
