"""A run in its directory: begun, so that it can be gone on with, or opened again."""

from pathlib import Path

import torch

from qkv.bundle.bundle import TOKENIZER
from qkv.errors import TrainingError
from qkv.files import unwritten
from qkv.text import Tokenizer
from qkv.train.plan import prepare_again
from qkv.train.recipe import read_recipe
from qkv.train.run import RECIPE, Run


def begin(run: Run) -> None:
    """Make its directory, with all that another process needs to go on with it."""
    place = run.directory
    try:
        place.mkdir(parents=True, exist_ok=True)
        run.tokenizer.save(place / TOKENIZER)
        (place / RECIPE).write_text(run.recipe.toml(), encoding="utf-8")  # last: all is there
    except OSError as error:
        raise TrainingError(unwritten(place, error)) from error


def reopen(place: Path, device: torch.device, job: str | None = None) -> Run:
    """The run that was begun there, before it is resumed; for that job, if one is named."""
    recipe = read_recipe((place / RECIPE).read_text("utf-8"))
    if job not in (None, recipe.task.kind):
        raise TrainingError(f"the run in {place} is for {recipe.task.kind}, not for {job}")
    return Run(prepare_again(recipe, Tokenizer.load(place / TOKENIZER)), place, device)
