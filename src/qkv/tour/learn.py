"""A training loop just long enough to show that a model learns; a generator of losses."""

from collections.abc import Callable, Iterator

import torch
import torch.nn.functional as F
from torch import Tensor

from qkv.model import Model, MultiHead, PreNorm, ReLU, Sinusoidal, Stack

STEPS = 300


def small_stack() -> Stack:
    """What all three demonstrations are made of: the paper's parts, pre-norm, small."""
    return Stack(
        layers=2,
        width=48,
        attention=MultiHead(heads=2),
        feed_forward=ReLU(width=96),
        position=Sinusoidal(),
        residual=PreNorm(),
    )


def learn(
    model: Model, forward: Callable[[], tuple[Tensor, Tensor]], steps: int = STEPS
) -> Iterator[float]:
    """One loss a step. `forward` gives scores (N, classes) and what they should have said (N,)."""
    optimiser = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, max_lr=3e-3, total_steps=steps)
    model.train()
    for _ in range(steps):
        scores, wanted = forward()
        loss = F.cross_entropy(scores, wanted)
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        schedule.step()
        yield loss.item()
    model.eval()


class Words:
    """A vocabulary of whole words, numbered in the order given."""

    def __init__(self, *words: str, device: torch.device) -> None:
        self.device = device
        self.words = list(dict.fromkeys(words))
        self.number = {word: i for i, word in enumerate(self.words)}

    def __len__(self) -> int:
        return len(self.words)

    def ids(self, texts: list[list[str]]) -> Tensor:
        """Texts of one length -> (B, T)."""
        numbers = [[self.number[word] for word in text] for text in texts]
        return torch.tensor(numbers, device=self.device)
