"""Whether a head matters: how much it adds to the residual, and what its absence changes."""

from collections.abc import Iterator

import torch
from torch import Tensor

from qkv.engine.answering import answering
from qkv.explain.trace import Graph, HeadOff, Reading, Trace
from qkv.model import Model


def lengths(trace: Trace, attention: str) -> Tensor:
    """How long, summed over positions, the vector is that each head adds: (H,)."""
    mixed = trace[f"{attention}.mixed"][0].double()  # (H, T, E)
    name, (H, _, E) = f"{attention}.output", mixed.shape
    if name in trace.graph.nodes:
        weight = trace.parameters[trace.node(name).inputs[1]].detach().cpu().double()
        mixed = mixed @ weight.reshape(-1, H, E).permute(1, 2, 0)  # (H, T, D)
    return _length(mixed).sum(dim=-1)


def effects(model: Model, graph: Graph, reading: Reading, off: list[HeadOff]) -> Iterator[float]:
    """How far the answer to one text moves when each of these heads adds nothing."""
    device = model.embedding.weight.device
    ids = [torch.tensor([row], device=device) for row in reading.ids.values()]
    likely = "probabilities" in graph.nodes
    with answering(model):
        before = _answer(model(*ids), likely)
        for edit in off:
            with edit.applied(model, graph):
                after = _answer(model(*ids), likely)
            yield float(_moved(before, after, likely))


def _answer(output: Tensor, likely: bool) -> Tensor:
    return output.float().softmax(dim=-1) if likely else output.float()


def _moved(before: Tensor, after: Tensor, likely: bool) -> Tensor:
    """Total variation, the mean over positions; for a vector the way it went over its length."""
    if likely:
        return (after - before).abs().sum(dim=-1).mean() / 2
    return (_length(after - before) / _length(before).clamp(min=1e-12)).mean()


def _length(vectors: Tensor) -> Tensor:
    found: Tensor = torch.linalg.vector_norm(vectors, dim=-1)
    return found
