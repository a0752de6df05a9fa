"""Encoder-only: a verdict on a sentence, tested on negations that training never showed."""

from collections.abc import Iterator
from itertools import product

import torch
from torch import Tensor

from qkv.model import Classify, Embedding, Encoder, EncoderOnly, build
from qkv.tour.learn import Words, learn, small_stack

LABELS = ("negative", "positive")
SUBJECTS = ("film", "plot", "music", "cast", "ending")
GOOD, BAD = ("good", "lovely", "funny", "clever"), ("bad", "dull", "silly", "weak")
LINKS, STRENGTHS = ("was", "seemed"), ("so", "very", "rather")
NEGATIONS = ("indeed", "not", "never")  # the first is none
UNSEEN = {("not", "lovely"), ("never", "funny"), ("not", "dull"), ("never", "weak")}

Example = tuple[list[str], int]


def sentences() -> tuple[list[Example], list[Example]]:
    """Training and test sentences; pairs of negation and adjective in UNSEEN are only tested."""
    train: list[Example] = []
    test: list[Example] = []
    for s, link, no, strength, word in product(
        SUBJECTS, LINKS, NEGATIONS, STRENGTHS, (*GOOD, *BAD)
    ):
        label = int((word in GOOD) == (no == "indeed"))
        side = test if (no, word) in UNSEEN else train
        side.append((["the", s, link, no, strength, word], label))
    return train, test


class Sentiment:
    """Learns on the training sentences; every step yields the loss."""

    def __init__(self, device: torch.device) -> None:
        self.train, self.test = sentences()
        self.words = Words(*(word for text, _ in self.train for word in text), device=device)
        config = EncoderOnly(
            length=16,
            embedding=Embedding(vocabulary=len(self.words), scaled=True),
            encoder=small_stack(),
            output=Classify(labels=LABELS),
        )
        model = build(config, seed=1, device=device)
        assert isinstance(model, Encoder)
        self.model = model

    def learn(self) -> Iterator[float]:
        ids, wanted = self._tensors(self.train)
        generator = torch.Generator().manual_seed(1)

        def forward() -> tuple[Tensor, Tensor]:
            rows = torch.randint(len(ids), (64,), generator=generator).to(ids.device)
            return self.model(ids[rows]), wanted[rows]

        yield from learn(self.model, forward)

    @torch.no_grad()
    def accuracy(self) -> float:
        ids, wanted = self._tensors(self.test)
        return float((self.model(ids).argmax(dim=-1) == wanted).double().mean())

    @torch.no_grad()
    def classify(self, text: str) -> tuple[str, float]:
        """The label and its probability."""
        shares = self.model(self.words.ids([text.split()])).softmax(dim=-1)[0]
        best = int(shares.argmax())
        return LABELS[best], float(shares[best])

    def _tensors(self, examples: list[Example]) -> tuple[Tensor, Tensor]:
        texts, labels = zip(*examples, strict=True)
        return self.words.ids(list(texts)), torch.tensor(labels, device=self.words.device)
