"""A whole training run as one frozen value: the same recipe and data give the same weights."""

import tomllib
from typing import Annotated, Any, Literal

import tomli_w
from pydantic import Field, PositiveFloat, ValidationError

from qkv.errors import TrainingError
from qkv.model import DecoderOnly
from qkv.model.choice import Choice, Count, Share, Size, one_line
from qkv.train.optimiser import MuonAdamW, OptimiserChoice
from qkv.train.schedule import Linear, ScheduleChoice


class Data(Choice):
    """Which texts: a built-in corpus or files, and what they held when the recipe was made."""

    files: Annotated[tuple[str, ...], Field(strict=False)] = ()  # none: the built-in corpus
    sha256: str
    documents: Size
    held_out: Annotated[float, Field(gt=0.0, lt=1.0)] = 0.1


class Recipe(Choice):
    """Everything that decides the result of `qkv train language`."""

    job: Literal["language"] = "language"
    data: Data
    tokens: str  # the kind of tokenizer, one of qkv.text.KINDS
    model: DecoderOnly
    optimiser: OptimiserChoice = MuonAdamW()
    schedule: ScheduleChoice = Linear()
    steps: Size
    batch: Size  # windows a step
    accumulate: Size = 1  # parts each step is computed in
    clip: PositiveFloat = 1.0
    smoothing: Share = 0.0
    seed: Count = 0
    evaluate_every: Size

    def toml(self) -> str:
        """The recipe as a file that `read_recipe` reads back; what is not set is left out."""
        return tomli_w.dumps(self.model_dump(exclude_none=True))


def read_recipe(text: str) -> Recipe:
    """The recipe that this TOML describes."""
    try:
        fields: dict[str, Any] = tomllib.loads(text)
        return Recipe.model_validate(fields)
    except tomllib.TOMLDecodeError as error:
        raise TrainingError(f"the recipe is not valid TOML: {error}") from None
    except ValidationError as error:
        raise TrainingError(one_line(error)) from None
