"""Decoder-only: the next token, again and again, until a row of digits is sorted."""

from collections.abc import Iterator

import torch
from torch import Tensor

from qkv.model import Decoder, DecoderOnly, Embedding, build
from qkv.tour.learn import learn, small_stack

DIGITS, LENGTH = 10, 5
ARROW = DIGITS  # the token between the digits and their sorted row


class Sorting:
    """Rows "4 1 7 1 0 → 0 1 1 4 7", learnt as plain text from left to right."""

    def __init__(self, device: torch.device) -> None:
        config = DecoderOnly(
            length=2 * LENGTH + 1,
            embedding=Embedding(vocabulary=DIGITS + 1, scaled=True),
            decoder=small_stack(),
        )
        model = build(config, seed=2, device=device)
        assert isinstance(model, Decoder)
        self.model = model
        generator = torch.Generator().manual_seed(2)
        every = torch.randperm(DIGITS**LENGTH, generator=generator).to(device)
        self.train, self.test = _rows(every[2000:]), _rows(every[:2000])

    def learn(self) -> Iterator[float]:
        generator = torch.Generator().manual_seed(3)

        def forward() -> tuple[Tensor, Tensor]:
            chosen = torch.randint(len(self.train), (128,), generator=generator)
            rows = self.train[chosen.to(self.train.device)]
            scores = self.model(rows[:, :-1])[:, LENGTH:]  # judged only after the arrow
            return scores.flatten(0, 1), rows[:, LENGTH + 1 :].flatten()

        yield from learn(self.model, forward, steps=400)

    def accuracy(self) -> float:
        """Rows never seen in training that come out sorted, digit for digit."""
        written = self.complete(self.test[:, : LENGTH + 1])
        return float((written == self.test).all(dim=1).double().mean())

    @torch.no_grad()
    def complete(self, start: Tensor) -> Tensor:
        """The most likely next token, appended until the row is full; computed with a cache."""
        cache = self.model.empty_cache(len(start))
        written, new = start, start
        while written.shape[1] < 2 * LENGTH + 1:
            new = self.model(new, cache=cache)[:, -1:].argmax(dim=-1)
            written = torch.cat((written, new), dim=1)
        return written


def spell(row: Tensor) -> str:
    return " ".join("→" if token == ARROW else str(token) for token in row.tolist())


def _rows(numbers: Tensor) -> Tensor:
    digits = torch.stack([numbers // DIGITS**i % DIGITS for i in range(LENGTH)], dim=1)
    arrow = torch.full((len(digits), 1), ARROW, device=digits.device)
    return torch.cat((digits, arrow, digits.sort(dim=1).values), dim=1)
