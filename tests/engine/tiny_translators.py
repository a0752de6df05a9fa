"""Tiny real translators with opinions, and the targets they should give, found the slow way."""

import itertools
import math
from collections.abc import Sequence

import torch

from qkv.engine.beam.hypotheses import Hypothesis
from qkv.model import (
    Alibi,
    Embedding,
    EncoderDecoder,
    Learned,
    MultiHead,
    NextToken,
    ReLU,
    Rope,
    Sinusoidal,
    Stack,
    Translator,
    build,
)
from qkv.model.position import PositionConfig

START, END, LENGTH = 1, 2, 19
POSITIONS = (Sinusoidal(), Learned(), Rope(), Alibi())


def translator(
    seed: int = 0,
    vocabulary: int = 13,
    position: PositionConfig = POSITIONS[0],
    ending: float = 0.0,
    **changes: object,
) -> Translator:
    """`ending` is added to the score of the end at every position."""
    stack = Stack(
        layers=2,
        width=12,
        attention=MultiHead(heads=3, kv_heads=1),
        feed_forward=ReLU(width=17),
        position=position,
        dropout=0.1,
    )
    config = EncoderDecoder(
        length=LENGTH,
        embedding=Embedding(vocabulary=vocabulary, scaled=True),
        encoder=stack,
        decoder=stack,
        output=NextToken(tied=False, bias=True),
    )
    model = build(config.model_copy(update=changes), seed)
    assert isinstance(model, Translator)
    with torch.no_grad():
        model.output.weight.mul_(30.0)
        model.output.bias[END] = ending
    return model.eval()


@torch.no_grad()
def log_probabilities(model: Translator, source: Sequence[int], ids: Sequence[int]) -> list[float]:
    """log p of every token after these ids, computed from nothing."""
    scores = model(torch.tensor([list(source)]), torch.tensor([[START, *ids]]))
    return scores[0, -1].log_softmax(dim=-1).tolist()


def forced_score(model: Translator, source: Sequence[int], written: Hypothesis) -> float:
    """The score of a target that is read all at once."""
    tokens = [*written.ids] + [END] * (written.stop_reason == "end")
    with torch.no_grad():
        scores = model(torch.tensor([list(source)]), torch.tensor([[START, *tokens[:-1]]]))
    logs = scores[0].log_softmax(dim=-1)
    return sum(float(logs[t, token]) for t, token in enumerate(tokens))


def greedy(
    model: Translator, source: Sequence[int], longest: int, forbidden: Sequence[int] = ()
) -> Hypothesis:
    ids: list[int] = []
    score = 0.0
    while len(ids) < longest:
        logs = log_probabilities(model, source, ids)
        token = max((t for t in range(len(logs)) if t not in forbidden), key=lambda t: logs[t])
        score += logs[token]
        if token == END:
            return Hypothesis(tuple(ids), score, score / (len(ids) + 1), "end")
        ids.append(token)
    return Hypothesis(tuple(ids), score, score / len(ids), "length")


def slow_beam_search(
    model: Translator,
    source: Sequence[int],
    beams: int,
    longest: int,
    length_penalty: float,
    forbidden: Sequence[int] = (),
) -> list[Hypothesis]:
    """Every target a beam search meets, best first. It goes on to the last step: no early stop."""
    live: list[tuple[float, tuple[int, ...]]] = [(0.0, ())]
    found: list[Hypothesis] = []
    for step in range(1, longest + 1):
        continued = [
            (score + log, (*ids, token))
            for score, ids in live
            for token, log in enumerate(log_probabilities(model, source, ids))
            if token not in forbidden
        ]
        continued.sort(key=lambda pair: -pair[0])
        for score, ids in continued[:beams]:
            if ids[-1] == END:
                found.append(Hypothesis(ids[:-1], score, score / step**length_penalty, "end"))
        live = [(score, ids) for score, ids in continued if ids[-1] != END][:beams]
    for score, ids in live:
        found.append(Hypothesis(ids, score, score / longest**length_penalty, "length"))
    return sorted(found, key=lambda hypothesis: -hypothesis.rank)


def every_target(
    model: Translator, source: Sequence[int], longest: int, length_penalty: float
) -> list[Hypothesis]:
    """All there are: those that end, and those of full length that do not; best first."""
    others = [t for t in range(model.config.embedding.vocabulary) if t != END]
    found = []
    for count in range(longest + 1):
        for ids in itertools.product(others, repeat=count):
            stop = "end" if count < longest else "length"
            score = forced_score(model, source, Hypothesis(ids, 0.0, 0.0, stop))  # type: ignore[arg-type]
            scored = min(count + 1, longest)
            found.append(Hypothesis(ids, score, score / scored**length_penalty, stop))  # type: ignore[arg-type]
    return sorted(found, key=lambda hypothesis: -hypothesis.rank)


def assert_alike(found: Sequence[Hypothesis], expected: Sequence[Hypothesis]) -> None:
    """The same targets in the same order, their scores equal but for rounding."""
    assert [h.ids for h in found] == [h.ids for h in expected]
    assert [h.stop_reason for h in found] == [h.stop_reason for h in expected]
    for a, b in zip(found, expected, strict=True):
        assert math.isclose(a.score, b.score, rel_tol=1e-4, abs_tol=1e-4)
        assert math.isclose(a.rank, b.rank, rel_tol=1e-4, abs_tol=1e-4)
