"""One model of the tour trained in its folder: begun, gone on with, or found finished."""

from collections.abc import Callable
from pathlib import Path

import torch

from qkv.bundle.manifest import MANIFEST, recover
from qkv.tour.pace import Part
from qkv.train.open import begin, reopen
from qkv.train.plan import prepare
from qkv.train.run import RECIPE, Event, Run

Follow = Callable[[Run, Event], None]


def is_finished(place: Path) -> bool:
    recover(place)  # a run that was killed at its very end may have been moved aside
    return (place / MANIFEST).exists()


def train(
    part: Part,
    place: Path,
    device: torch.device,
    follow: Follow,
    say: Callable[[str], None] = lambda line: None,
) -> None:
    """The folder becomes a bundle; if it is one already, nothing happens.

    `follow` is told every step and evaluation. It may raise KeyboardInterrupt: the run is saved,
    and the next call goes on from there to the very same weights.
    """
    if is_finished(place):
        return
    begun = (place / RECIPE).exists()
    run = _gone_on(place, device, say) if begun else _begun(part, place, device)
    for event in run.events():
        try:
            follow(run, event)
        except KeyboardInterrupt:
            run.save()
            raise
    run.finish()


def _begun(part: Part, place: Path, device: torch.device) -> Run:
    run = Run(prepare(part.wish), place, device)
    begin(run)
    return run


def _gone_on(place: Path, device: torch.device, say: Callable[[str], None]) -> Run:
    run = reopen(place, device)
    run.resume(say)
    say(f"{place}: going on after step {run.progress.done:,} of {run.recipe.steps:,}")
    return run
