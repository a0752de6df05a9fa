"""Batch = single: a text among others, and the same text alone.

Texts are laid side by side as training and `translate` lay them. For a model that writes they are
also read as `generate` reads many prompts: rows that end together, in a cache that rows join.
"""

from functools import partial

import torch
from torch import Tensor

from qkv.attention import Rows
from qkv.check.asking import ask, one_row
from qkv.check.parting import last_ones, parting
from qkv.check.passage import Values, passed, row
from qkv.check.report import Check, Finding, Tally
from qkv.check.samples import Reading
from qkv.check.subject import Subject
from qkv.engine.generate.prefill import Prefill
from qkv.engine.generate.prefixes import Prefixes
from qkv.model import Decoder, NextToken

PROMPTS = 8  # so few that they are read in one portion


def find(subject: Subject, tolerance: float) -> Finding:
    tally = Tally(tolerance)
    for which, model in subject.models():
        texts = subject.readings
        runs = (partial(ask, model, [text]) for text in texts)
        together, *each = passed(model, partial(ask, model, texts), *runs)
        for b, alone in enumerate(each):
            found = parting(alone, row(together, b), tolerance)
            tally.add(found.worst, found.told(which, f"text {b + 1} of {len(texts)}"))
        if isinstance(model, Decoder) and isinstance(model.config.output, NextToken):
            _written(model, which, texts, tally)
    return tally.finding()


def _written(model: Decoder, which: str, texts: list[Reading], tally: Tally) -> None:
    """Prompts that are read together, and a token more for each: all but the last one is prompt."""
    texts = [text for text in texts if len(text.ids) > 1][:PROMPTS]
    prompts = [torch.tensor(text.ids[:-1]).numpy() for text in texts]
    if not texts:
        return
    prefill = Prefill(model, prompts, Prefixes(0))
    vocabulary = model.config.embedding.vocabulary
    (read,) = passed(model, partial(prefill.step, vocabulary))
    rows = Rows(model.empty_cache(1, 0))
    rows.join(prefill.cache, dict(enumerate(prefill.lengths)))
    (written,) = passed(model, partial(_next, model, rows, [text.ids[-1] for text in texts]))
    for b, text in enumerate(texts):
        for said, ids, values in (
            ("prompt", text.ids[:-1], read),
            ("next token", text.ids, written),
        ):
            (alone,) = passed(model, partial(model, one_row(model, ids)))
            found = parting(_of_last(alone), _of_last(row(values, b)), tally.tolerance, last_ones)
            place = found.place if found.position is None else f"{found.place}, last position"
            where = filter(None, (place, which, f"{said} {b + 1} of {len(texts)}"))
            tally.add(found.worst, ", ".join(where))


def _next(model: Decoder, rows: Rows, tokens: list[int]) -> Tensor:
    ids = torch.tensor(tokens, device=model.embedding.weight.device)[:, None]  # (B, 1)
    positions, mask = rows.show()
    return model.states(ids, mask=mask, positions=positions, cache=rows.cache)


def _of_last(values: Values) -> Values:
    """Without the answer: prompts are answered for their last token only."""
    return {place: value for place, value in values.items() if value.dim() > 2}


def lacks(subject: Subject) -> str:
    return "there is only one text" if len(subject.readings) < 2 else ""


BATCH = Check(
    "batch = single",
    "a text among others gives what it gives alone",
    1e-4,
    find,
    lacks,
)
