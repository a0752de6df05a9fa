"""The model a run begins with: fresh, or one that has learnt something already."""

from pathlib import Path

import torch

from qkv.bundle import Bundle, hash_of
from qkv.errors import TrainingError
from qkv.model import Classify, Model, build
from qkv.model.output import Output
from qkv.train.recipe import Origin, Recipe


def origin_of(directory: Path) -> Origin:
    """The bundle or public checkpoint in that place, by path and content."""
    return Origin(path=str(directory.absolute()), sha256=hash_of(directory))


def load_origin(origin: Origin) -> Bundle:
    """The bundle, refused if it is no longer the one the recipe was made with."""
    place = Path(origin.path)
    if not place.exists():
        raise TrainingError(f"{place}, which this run began with, is gone; put it back to go on")
    if origin_of(place).sha256 != origin.sha256:
        raise TrainingError(f"{place} has changed since the recipe was made")
    return Bundle.load(place)


def begin(recipe: Recipe, origin: Bundle | None, device: torch.device) -> Model:
    """Fresh weights from the seed; from an origin, all that fits is taken over.

    The output is taken over too if the job is the same, with the same labels; else it begins anew.
    """
    model = build(recipe.model, recipe.seed, device)
    if origin is not None:
        weights, before = model.state_dict(), origin.model.config.output
        other = before.kind != recipe.model.output.kind or _labels(before) != _labels(
            recipe.model.output
        )
        for name, learnt in origin.model.state_dict().items():
            if name.startswith("output.") and other:
                continue
            if name.endswith("position.weight") and name in weights:
                learnt = learnt[: len(weights[name])]  # a shorter context: the first positions
            if name in weights and weights[name].shape == learnt.shape:
                weights[name] = learnt
            elif not name.startswith("output."):
                raise TrainingError(
                    f"{recipe.origin.path if recipe.origin else 'the origin'}: {name} is "
                    f"{tuple(learnt.shape)} there and does not fit this model"
                )
        model.load_state_dict(weights)
    return model


def _labels(output: Output) -> tuple[str, ...]:
    return output.labels if isinstance(output, Classify) else ()
