"""The loop of every search: read the latest tokens, choose the next, let the finished leave."""

from typing import Protocol

import torch
from torch import Tensor

from qkv.engine.decoding import Decoding
from qkv.engine.hypothesis import Hypothesis

LEAVING = 1 / 8  # the share of sentences that must have finished before the others close ranks


class Front(Protocol):
    """What a search knows of each sentence of a batch: the beams it follows, and what it found."""

    tokens: Tensor  # (B, beams), the latest of each beam
    parents: Tensor  # (B, beams), the beam of its sentence that each one goes on from
    done: Tensor  # (B,) bool, sentences whose answer cannot change any more

    def choose(self, logs: Tensor) -> None:
        """Write one more token in each beam, given log p of every token, (B, beams, V)."""

    def take(self, sentences: Tensor) -> None:
        """Go on with these sentences only."""

    def hypotheses(self) -> list[list[Hypothesis]]:
        """What was found for each sentence, best first."""


def search(decoding: Decoding, front: Front) -> list[list[Hypothesis]]:
    """The targets of each source of the decoding, best first."""
    B, beams = front.tokens.shape
    found: list[list[Hypothesis]] = [[] for _ in range(B)]
    sources = list(range(B))  # of the sentences still at work
    logs = decoding.read(front.tokens[:, :1]).expand(-1, beams, -1)  # one start for all
    while True:
        front.choose(logs)
        done = front.done.tolist()  # the one time a step that the device is waited for
        if any(done) and sum(done) >= LEAVING * len(done):
            for source, finished, answer in zip(sources, done, front.hypotheses(), strict=True):
                if finished:
                    found[source] = answer
            if all(done):
                return found
            sources = [s for s, finished in zip(sources, done, strict=True) if not finished]
            staying = torch.tensor(
                [i for i, finished in enumerate(done) if not finished], device=decoding.device
            )
            front.take(staying)
            decoding.take(staying)
        decoding.follow(front.parents)
        logs = decoding.read(front.tokens)  # (B, beams, V)
