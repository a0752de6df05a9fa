"""The pictures of the docs, drawn from the program's own numbers.

The same bytes for the same numbers and the same version of matplotlib: no date, no random ids.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from plots import activations, paper, sampling, schedules, sinusoids

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PICTURES = Path(__file__).resolve().parents[1] / "docs" / "pictures"
INK = "0.15"


def draw_all(folder: Path = PICTURES) -> None:
    """Every picture of this file into the folder."""
    folder.mkdir(exist_ok=True)
    for name, draw in DRAWN.items():
        draw(folder / f"{name}.svg")


def lemma(path: Path) -> None:
    from qkv.interpret.lemma import measure_lemma, plot_lemma

    plot_lemma(measure_lemma(), path)


def worked(example: str, mask: bool = False, steps: Sequence[str] = ("weights",)) -> Callable:
    """The weights of a worked example, each step a panel with its numbers."""

    def draw(path: Path) -> None:
        from dataclasses import replace

        from qkv.interpret.examples import EXAMPLES
        from qkv.interpret.export.drawing import add_colorbar, draw_weights
        from qkv.interpret.walk import walk

        sheet = EXAMPLES[example]
        walked = walk(replace(sheet, causal=True) if mask else sheet)
        with paper(path, 3.4 * len(steps) + 0.6, 2.6) as figure:
            panels = figure.subplots(1, len(steps), squeeze=False)[0]
            for axes, name in zip(panels, steps, strict=True):
                step = walked[name]
                seen = np.tri(*step.value.shape, dtype=bool) if mask else step.value >= 0
                image = draw_weights(axes, step.value, seen)
                _name(axes, step.rows, step.columns, step.value, seen)
                if len(steps) > 1:
                    axes.set_title(f"head {steps.index(name) + 1}", fontsize=9)
            add_colorbar(figure, image, list(panels))

    return draw


def family(preset: str, ids: dict[str, int]) -> Callable:
    """All heads of a named model whose weights are still random, over so many tokens."""

    def draw(path: Path) -> None:
        import qkv
        from qkv.interpret.export import draw_heads
        from qkv.interpret.trace import TokenizedInput, capture_trace

        model = qkv.build(qkv.preset(preset), seed=0).eval()
        reading = TokenizedInput.from_ids(**{name: range(7, 7 + n) for name, n in ids.items()})
        about = {"model": f"{preset}, weights at random"}
        draw_heads(capture_trace(model, reading, keep=["*.weights"], metadata=about), path)

    return draw


def _name(
    axes: "Axes", rows: Sequence[str], columns: Sequence[str], value: np.ndarray, seen: np.ndarray
) -> None:
    """Words beside rows and columns, and each number in its cell."""
    axes.set_yticks(range(len(rows)), labels=rows)
    axes.set_xticks(range(len(columns)), labels=columns)
    axes.set(xlabel="key →", ylabel="query ↓")
    axes.xaxis.set_label_position("top")
    axes.xaxis.tick_top()
    for (i, j), weight in np.ndenumerate(value):
        if seen[i, j]:
            colour = "white" if weight > 0.3 else INK
            axes.text(j, i, f"{weight:.4f}", ha="center", va="center", color=colour)


DRAWN: dict[str, Callable[[Path], None]] = {
    "lemma": lemma,
    "sinusoids": sinusoids,
    "poem": worked("poem"),
    "causal": worked("poem", mask=True),
    "poem-heads": worked("heads", steps=("head1.weights", "head2.weights")),
    "cross": worked("cross"),
    "encoder": family("classify-tiny", {"text": 7}),
    "decoder": family("language-tiny", {"text": 7}),
    "translator": family("translate-tiny", {"source": 7, "target": 5}),
    "activations": activations,
    "schedules": schedules,
    "sampling": sampling,
}
