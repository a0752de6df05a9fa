"""How a model of any family is asked: texts side by side, or one after the other with a cache."""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from qkv.attention import KVCache
from qkv.check.samples import Reading
from qkv.engine.texts import Texts
from qkv.model import Decoder, Encoder, Model, Translator
from qkv.model.output import Pooled


def ask(model: Model, readings: Sequence[Reading], more: int = 0, fill: int = 0) -> Tensor:
    """What the model says of texts side by side.

    more: so many columns of padding beyond the longest; fill: the token that pads.
    """
    target = _beside(model, [reading.ids for reading in readings], more, fill)
    if isinstance(model, Translator):
        source = _beside(model, [reading.source for reading in readings], more, fill)
        said: Tensor = model(source[0], target[0], source[1], target[1])
    else:
        said = model(*target)
    return said


def one_row(model: Model, ids: Sequence[int]) -> Tensor:
    """A single text, (1, T)."""
    return torch.tensor([list(ids)], device=model.embedding.weight.device)


class Writer:
    """A decoder, or an encoder–decoder that has read its source, as it writes one text."""

    def __init__(self, model: Decoder | Translator, reading: Reading) -> None:
        self.model, self.ids = model, one_row(model, reading.ids)
        self.memory: Tensor | None = None
        if isinstance(model, Translator):
            with torch.inference_mode():
                self.memory = model.encode(one_row(model, reading.source))

    def empty_cache(self, rows: int = 1) -> KVCache:
        return self.model.empty_cache(rows, self.ids.shape[1])

    def read(self, start: int, stop: int, cache: KVCache | None = None) -> Tensor:
        """What the model says of some tokens of the text, which follow those in the cache."""
        return self.say(self.ids[:, start:stop], cache)

    def say(self, ids: Tensor, cache: KVCache | None) -> Tensor:
        """The same of any tokens (B, T), each row of which may be a text of its own."""
        if isinstance(self.model, Translator):
            assert self.memory is not None
            return self.model.decode(ids, self.memory.expand(len(ids), -1, -1), cache=cache)
        said: Tensor = self.model(ids, cache=cache)
        return said


def pooled(model: Encoder | Decoder, reading: Reading) -> Tensor:
    """The vector of a text before anything is made of it, (1, D)."""
    ids = one_row(model, reading.ids)
    states = model.encode(ids) if isinstance(model, Encoder) else model.states(ids)
    assert isinstance(model.output, Pooled)
    return model.output.pool(states, torch.tensor([ids.shape[1]], device=ids.device))


def _beside(
    model: Model, rows: Sequence[Sequence[int]], more: int, fill: int
) -> tuple[Tensor, Tensor | None]:
    texts = Texts.of([*rows], fill)
    lengths = texts.lengths
    if more and lengths is None:
        lengths = torch.tensor([len(row) for row in rows])
    ids, device = F.pad(texts.ids, (0, more), value=fill), model.embedding.weight.device
    return ids.to(device), None if lengths is None else lengths.to(device)
