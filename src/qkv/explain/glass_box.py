"""A loaded model that answers and can be opened: every number it computes, by name.

model = qkv.load("runs/reviews")
trace = model.trace("what a film")
trace["encoder.0.attention.weights"]
"""

from __future__ import annotations

import hashlib
import os
import platform
from collections.abc import Sequence
from functools import cached_property
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

import qkv
from qkv.engine.answering import answering
from qkv.engine.engine import Engine
from qkv.explain.trace import Edit, Reading, Trace, open_up
from qkv.explain.trace.opening import EVERYTHING, Rows
from qkv.model import Model, Translator

if TYPE_CHECKING:
    from qkv.explain.why.ask import Reason


class GlassBox(Engine):
    """An engine whose model can be looked into."""

    def trace(
        self,
        text: str,
        *,
        target: str | None = None,
        keep: Sequence[str] = EVERYTHING,
        rows: Rows = None,
        edits: Sequence[Edit] = (),
    ) -> Trace:
        """The values of one pass over the text, those whose names match one of `keep`.

        target: what an encoder–decoder is to have written so far; its own translation if not
        given. rows: of scores, weights and the steps between, only these queries.
        """
        from qkv.explain.reading import read_text

        if isinstance(self.model, Translator) and target is None:
            target = self._own_translation(text)
        reading = read_text(self.model, self.tokenizer, text, target)
        about = self.about | {"text": text} | ({} if target is None else {"target": target})
        served = None if edits else served_answer(self.quick, reading)
        return open_up(self.model, reading, keep, rows, edits, about, served)

    def why(self, text: str, **asked: Any) -> Reason:
        """Why the model answers as it does, and how far to trust that; see `qkv.explain.why`.

        A classifier: which words make the label. A decoder: why this token rather than that one.
        A translator: where each word of the target comes from. Other encoders: which words make
        the vector.
        """
        from qkv.explain.why.ask import why

        return why(self.model, self.tokenizer, text, **asked)

    def _own_translation(self, text: str) -> str:
        """As much of it as the model reads: cut into tokens again it may be longer."""
        written = self.translate([text])[0].text
        ids = self.tokenizer.encode(written, target=True)
        room = self.model.config.length - 2  # beside two marks at most
        return written if len(ids) <= room else self.tokenizer.decode(ids[:room])

    @cached_property
    def about(self) -> dict[str, str]:
        """Where a number comes from: the model and what computed it."""
        return {
            "model": PurePath(self.name).name,  # no folders of this machine
            "sha256": fingerprint(self.model),
            "qkv": qkv.__version__,
            "torch": torch.__version__,
            "python": platform.python_version(),
        }


def load(
    directory: str | os.PathLike[str],
    device: str = "cpu",
    int8: bool = False,
    compile: bool = False,
) -> GlassBox:
    """The model of a bundle or of a public checkpoint, ready to answer and to be opened."""
    return GlassBox.load(directory, device, int8, compile)


def fingerprint(model: Model) -> str:
    """A hash of every parameter by name: the same for the same numbers, wherever they lie."""
    found = hashlib.sha256(model.config.model_dump_json().encode())
    for name, parameter in sorted(model.named_parameters()):
        found.update(name.encode())
        numbers = parameter.detach().cpu().contiguous()
        found.update(numbers.view(torch.uint8).numpy().data)
    return found.hexdigest()


def served_answer(quick: Model, reading: Reading) -> Tensor:
    """What the twin that answers gives for the same ids."""
    device = quick.embedding.weight.device
    given = [torch.tensor([ids], device=device) for ids in reading.ids.values()]
    with answering(quick):
        answer: Tensor = quick(*given)
        return answer.float().cpu().clone()
