"""The plots of the docs: positions, activations, learning-rate schedules and sampling."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def sinusoids(path: Path) -> None:
    import torch

    from qkv.attention import sinusoids as position_vectors

    table = position_vectors(torch.arange(64), 48).numpy()
    with paper(path, 6.4, 4.2) as figure:
        axes = figure.subplots()
        image = axes.imshow(table, cmap="RdBu", vmin=-1, vmax=1, aspect="auto")
        axes.set(xlabel="feature", ylabel="position")
        figure.colorbar(image, ax=axes, shrink=0.8).set_ticks([-1, 0, 1])


def activations(path: Path) -> None:
    import torch

    from qkv.model import GELU, ReLU, ReLU2, SiLU

    x = torch.linspace(-3, 3, 121)
    with paper(path, 5.6, 3.2) as figure:
        axes = figure.subplots()
        for style, config in zip(("-", "--", "-.", ":"), (ReLU, GELU, SiLU, ReLU2), strict=True):
            axes.plot(
                x.numpy(), config(width=1).activation()(x).numpy(), style, label=config.__name__
            )
        axes.set(xlabel="x", ylim=(-0.5, 3), title="activation(x)")
        axes.legend(frameon=False)


def schedules(path: Path) -> None:
    from qkv.training.optimizer import Constant, Cosine, InverseSqrt, Linear

    with paper(path, 5.6, 3.0) as figure:
        axes = figure.subplots()
        kinds = (Linear(), Cosine(), InverseSqrt(), Constant())
        for style, kind in zip(("-", "--", "-.", ":"), kinds, strict=True):
            scales = [kind.scale(step, 1000) for step in range(0, 1000, 5)]
            axes.plot(range(0, 1000, 5), scales, style, label=kind.kind)
        axes.set(xlabel="step of 1,000", ylabel="learning-rate factor", ylim=(0, 1.05))
        axes.legend(frameon=False)


def sampling(path: Path) -> None:
    import torch

    from qkv.engine.generate import Sampling

    logits = torch.tensor([3.0, 2.4, 2.1, 1.2, 0.6, 0.2, -0.5, -1.0])
    settings = {
        "as they are": {}, "temperature 0.5": {"temperature": 0.5},
        "temperature 2": {"temperature": 2.0}, "top-k 3": {"top_k": 3}, "top-p 0.9": {"top_p": 0.9},
    }  # fmt: skip
    with paper(path, 8.4, 2.3) as figure:
        for axes, (title, options) in zip(
            figure.subplots(1, len(settings), sharey=True), settings.items(), strict=True
        ):
            probs = Sampling.of(**options).probs(logits, torch.tensor([], dtype=torch.long))
            axes.bar(range(len(logits)), probs.numpy(), color="#2b74b3")
            axes.set_title(title, fontsize=9)
            axes.set_xticks(range(len(logits)), labels=list("abcdefgh"))
        figure.supxlabel("token", fontsize=8)
        figure.supylabel("probability", fontsize=8)


@contextmanager
def paper(path: Path, width: float, height: float) -> Iterator["Figure"]:
    """A figure that is saved at the end of the block."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update({"svg.hashsalt": "qkv", "font.size": 8, "hatch.linewidth": 0.35,
                             "hatch.color": "0.75", "axes.linewidth": 0.6})  # fmt: skip
        figure = Figure(figsize=(width, height), layout="constrained")
        yield figure
        figure.savefig(path, dpi=150, metadata={"Date": None, "Creator": "qkv"})
