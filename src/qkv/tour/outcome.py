"""What a finished model of the tour came to, read from its bundle and from what training noted."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from qkv.data import Labelled, Pair
from qkv.explain import glass_box
from qkv.explain.glass_box import GlassBox
from qkv.tour.pace import Part
from qkv.train.job import find_job
from qkv.train.recipe import Recipe, read_recipe
from qkv.train.run import METRICS, RECIPE, last_summary


@dataclass(frozen=True)
class Outcome:
    """One part of the tour after training."""

    part: Part
    place: Path

    @cached_property
    def box(self) -> GlassBox:
        """The model, ready to answer and to be opened."""
        return glass_box.load(self.place)

    @cached_property
    def recipe(self) -> Recipe:
        return read_recipe((self.place / RECIPE).read_text("utf-8"))

    @cached_property
    def summary(self) -> Mapping[str, Any]:
        return last_summary(self.place / METRICS)

    @cached_property
    def lines(self) -> Sequence[Mapping[str, Any]]:
        """Every step and evaluation."""
        text = (self.place / METRICS).read_text("utf-8")
        return [json.loads(line) for line in text.splitlines()]

    @cached_property
    def examples(self) -> Any:
        """What it learnt from and what was held out."""
        return find_job(self.recipe.task.kind).load(self.recipe.data, self.recipe.seed)

    @property
    def reviews(self) -> Sequence[Labelled]:
        """Held out."""
        found: Sequence[Labelled] = self.examples.held_out
        return found

    @property
    def pairs(self) -> Sequence[Pair]:
        """Held out."""
        found: Sequence[Pair] = self.examples.held_out
        return found

    @property
    def parameters(self) -> int:
        return self.box.model.config.parameters()

    @property
    def score(self) -> float:
        return float(self.summary["held_out"][self.part.metric])

    @property
    def baseline(self) -> float:
        return float(self.summary["baseline"][self.part.metric])

    @property
    def beats(self) -> bool:
        """Whether it is better than its baseline."""
        return (self.score > self.baseline) == self.part.higher_is_better

    @property
    def trained(self) -> str:
        """How large it is and how it was made, in a sentence."""
        steps, seconds = self.summary["steps"], self.summary["seconds"]
        return (
            f"{self.parameters:,} parameters, trained for {steps:,} steps in {seconds:.0f} s on "
            f"{self.part.learns}."
        )

    @property
    def judged(self) -> str:
        """The score beside the baseline's, in a sentence."""
        said = "" if self.beats else ": no better than its baseline yet"
        return (
            f"{self.figure(self.score)} {self.part.measured}; {self.part.baseline}: "
            f"{self.figure(self.baseline)}{said}."
        )

    def figure(self, score: float) -> str:
        """The score as people read it."""
        match self.part.metric:
            case "accuracy":
                return f"{score:.1%}".replace("%", " %")
            case "bleu":
                return f"{score:.1f}"
            case _:
                return f"{score:.2f}"
