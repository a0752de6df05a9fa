"""What a decoder would have said after each layer: the logit lens (nostalgebraist 2020).

The state after a layer is read as if it were the last one: through the norm after the last block,
where the arrangement has one, and the output. The last line is the model's own answer. Earlier ones
are a reading, not a thought: no layer but the last was trained to be read so.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from qkv.engine.answering import answering
from qkv.engine.generate.reading import last_scores
from qkv.model import Decoder
from qkv.text import Tokenizer


@dataclass(frozen=True)
class Seen:
    """The likeliest token after one layer, and how likely the asked one is there.

    Layer 0 is before the first: the embedding itself. rank: 1 for the likeliest token.
    """

    layer: int
    best: str
    best_id: int
    best_probability: float
    probability: float
    rank: int

    def json(self) -> dict[str, object]:
        return {
            "layer": self.layer - 1 if self.layer else None,  # as they are named: from 0
            "best": self.best,
            "best_probability": self.best_probability,
            "probability": self.probability,
            "rank": self.rank,
        }


def logit_lens(
    model: Decoder, tokenizer: Tokenizer, ids: Sequence[int], token: int
) -> tuple[Seen, ...]:
    """What follows the ids, as it looks before the first layer and after each one."""
    with answering(model):
        found = []
        for layer, state in enumerate(states_by_layer(model, ids)):
            read = model.decoder.norm_out(state[:, -1:])
            shares = last_scores(model, read, tokenizer.size)[0].double().softmax(dim=-1)
            best = int(shares.argmax())
            found.append(
                Seen(
                    layer,
                    tokenizer.token(best),
                    best,
                    float(shares[best]),
                    float(shares[token]),
                    1 + int((shares > shares[token]).sum()),
                )
            )
        return tuple(found)


def states_by_layer(model: Decoder, ids: Sequence[int]) -> list[Tensor]:
    """What goes into the first layer, and what comes out of each: (1, T, D) every time."""
    states: list[Tensor] = []

    def enter(block: nn.Module, given: tuple[Tensor, ...]) -> None:
        if not states:
            states.append(given[0])

    def leave(block: nn.Module, given: object, state: Tensor) -> None:
        states.append(state)

    blocks = {id(block): block for block in model.decoder.blocks()}.values()  # layers may share one
    hooks = [block.register_forward_pre_hook(enter) for block in blocks]
    hooks += [block.register_forward_hook(leave) for block in blocks]
    try:
        model.states(torch.tensor([list(ids)], device=model.embedding.weight.device))
    finally:
        for hook in hooks:
            hook.remove()
    return states
