"""Tiny real decoders with opinions, and what they should write, found the slow way."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from qkv.engine.generate import LogitsProcessor, Sampling
from qkv.engine.generate.sampling import Greedy
from qkv.model import (
    Alibi,
    Decoder,
    DecoderOnly,
    Embedding,
    Learned,
    LocalAttention,
    MultiHead,
    NextToken,
    NoPosition,
    RelativeBuckets,
    ReLU,
    RMSNorm,
    Rope,
    Sinusoidal,
    Stack,
    SwiGLU,
    build,
)

VOCABULARY, LENGTH = 29, 61
KINDS: dict[str, dict[str, object]] = {
    "rotary": {"position": Rope(), "norm": RMSNorm()},
    "llama": {"position": Rope(), "norm": RMSNorm(), "feed_forward": SwiGLU(width=17)},
    "learned": {"position": Learned(offset=2)},
    "waves": {"position": Sinusoidal()},
    "alibi": {"position": Alibi()},
    "buckets": {"position": RelativeBuckets(buckets=8, max_distance=11, bidirectional=False)},
    "no positions": {"position": NoPosition()},
    "windows": {
        "position": Rope(),
        "local": LocalAttention(before=4, layers=(1,), position=Rope(base=7.0)),
    },
    "capped": {
        "position": Rope(fraction=0.5),
        "attention": MultiHead(heads=3, kv_heads=1, head_width=8, cap=0.7),
    },
}


def writer(kind: str = "rotary", seed: int = 0, length: int = LENGTH, width: int = 12) -> Decoder:
    stack: dict[str, object] = {
        "layers": 2,
        "width": width,
        "attention": MultiHead(heads=6, kv_heads=3, head_width=4),
        "feed_forward": ReLU(width=17),
        "dropout": 0.1,
    }
    config = DecoderOnly(
        length=length,
        embedding=Embedding(vocabulary=VOCABULARY, scaled=True),
        decoder=Stack(**stack | KINDS[kind]),
        output=NextToken(tied=False, bias=True),
    )
    model = build(config, seed)
    assert isinstance(model, Decoder)
    with torch.no_grad():
        model.output.weight.mul_(30.0)
        model.output.bias.normal_(generator=torch.Generator().manual_seed(seed))
        if kind == "buckets":
            model.decoder.position.weight.normal_(generator=torch.Generator().manual_seed(seed))
    return model.eval()


@torch.no_grad()
def slow_scores(model: Decoder, ids: Sequence[int]) -> Tensor:
    """The scores of the token after these ids, computed from nothing, (V,)."""
    return model(torch.tensor([list(ids)]))[0, -1]


def slow_greedy(model: Decoder, ids: Sequence[int], count: int) -> list[int]:
    written = list(ids)
    for _ in range(count):
        written.append(int(slow_scores(model, written).argmax()))
    return written[len(ids) :]


@dataclass(frozen=True)
class Watched(LogitsProcessor):
    """Changes nothing and remembers every row of scores it sees."""

    seen: list[Tensor] = field(default_factory=list, compare=False)

    def apply(self, scores: Tensor, ids: Tensor) -> Tensor:
        self.seen.append(scores.clone())
        return scores


def watched() -> tuple[Sampling, list[Tensor]]:
    """A greedy choice, and where it puts the scores it chose from."""
    step = Watched()
    return Sampling((step,), Greedy()), step.seen
