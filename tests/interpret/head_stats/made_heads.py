"""Models whose heads are set by hand, so that what each one does is known."""

import torch
from torch import Tensor

from qkv.interpret.trace import TokenizedInput
from qkv.model import (
    Decoder,
    DecoderOnly,
    Embedding,
    Encoder,
    EncoderOnly,
    Learned,
    MultiHead,
    NextToken,
    PreNorm,
    ReLU,
    RMSNorm,
    Stack,
    TextVector,
    build,
)

V, P, SPARE = 31, 53, 7  # tokens, positions, and places that no query or key looks at
WIDTH = V + P + V + SPARE
TOKEN, PLACE, BEFORE = slice(0, V), slice(V, V + P), slice(V + P, V + P + V)
SHARP = 5.0
# Layer 0 of the decoder, head by head; layer 1 has induction as its first head.
MADE = ("previous", "first", "everywhere", "same", "itself", "two back", "dead", "previous again")


@torch.no_grad()
def made_decoder() -> Decoder:
    """Two layers; all but the heads is one-hot or left out."""
    config = DecoderOnly(
        length=P,
        embedding=Embedding(vocabulary=V),
        decoder=_stack(len(MADE)),
        output=NextToken(tied=False),
    )
    model = build(config, seed=3)
    assert isinstance(model, Decoder)
    _one_hot(model.embedding.weight, TOKEN)
    _one_hot(model.decoder.position.weight, PLACE)
    for block in model.decoder.blocks():
        block.feed_forward.down.weight.zero_()
        block.feed_forward.down.bias.zero_()
        block.attention.query.weight.zero_()
        block.attention.key.weight.zero_()
        block.attention.output.weight[: WIDTH - SPARE] = 0.0
    first, second = model.decoder.blocks()
    for number, kind in enumerate(MADE):
        _make(kind, *_parts(first.attention, number))
    # What stood before a token is written beside it, for the next layer to look for.
    q, k, v = _parts(first.attention, MADE.index("previous"))
    v.zero_()
    v[:V, TOKEN] = torch.eye(V)
    first.attention.output.weight[BEFORE, :V] = 0.3 * torch.eye(V)
    q, k, _ = _parts(second.attention, 0)
    q[:V, TOKEN], k[:V, BEFORE] = SHARP * torch.eye(V), torch.eye(V)
    return model.eval()


@torch.no_grad()
def made_encoder(marks: list[int], vocabulary: int) -> Encoder:
    """One layer, two heads: the next token, and the marks."""
    config = EncoderOnly(
        length=P,
        embedding=Embedding(vocabulary=vocabulary),
        encoder=_stack(2, layers=1),
        output=TextVector(),
    )
    model = build(config, seed=5)
    assert isinstance(model, Encoder)
    model.embedding.weight.mul_(0.01)
    model.embedding.weight[marks, 0] = 1.0
    _one_hot(model.encoder.position.weight, PLACE)
    (block,) = model.encoder.blocks()
    block.attention.query.weight.zero_()
    block.attention.key.weight.zero_()
    q, k, _ = _parts(block.attention, 0)
    q[:, PLACE], k[: P - 1, V + 1 : V + P] = SHARP * torch.eye(P), torch.eye(P - 1)
    q, k, _ = _parts(block.attention, 1)
    q[0, PLACE], k[0, 0] = SHARP, 1.0
    return model.eval()


def drawn(length: int, seed: int) -> TokenizedInput:
    """A text in which no token comes twice."""
    generator = torch.Generator().manual_seed(seed)
    return TokenizedInput.from_ids(text=torch.randperm(V, generator=generator)[:length].tolist())


def _make(kind: str, q: Tensor, k: Tensor, v: Tensor) -> None:
    """Rows (P, WIDTH) of one head's matrices."""
    if kind in ("previous", "itself", "two back", "previous again"):
        back = {"itself": 0, "two back": 2}.get(kind, 1)
        q[:, PLACE] = SHARP * torch.eye(P)
        k[back:, V : V + P - back] = torch.eye(P - back)
    elif kind == "first":
        q[0, PLACE], k[0, V] = SHARP, 1.0
    elif kind == "same":
        q[:V, TOKEN], k[:V, TOKEN] = SHARP * torch.eye(V), torch.eye(V)
    elif kind == "dead":
        q[:, PLACE], k[:, PLACE] = torch.randn(P, P), torch.randn(P, P)
        v.zero_()


def _parts(attention: torch.nn.Module, head: int) -> tuple[Tensor, Tensor, Tensor]:
    rows = slice(head * P, (head + 1) * P)
    return tuple(getattr(attention, name).weight[rows] for name in ("query", "key", "value"))


def _one_hot(table: Tensor, place: slice) -> None:
    table.zero_()
    table[:, place] = torch.eye(len(table))


def _stack(heads: int, layers: int = 2) -> Stack:
    return Stack(
        layers=layers,
        width=WIDTH,
        attention=MultiHead(heads=heads, head_width=P, bias=False, output_bias=False),
        feed_forward=ReLU(width=5),
        position=Learned(),
        norm_placement=PreNorm(),
        norm=RMSNorm(),
    )
