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
    """Draws every picture into the folder."""
    folder.mkdir(exist_ok=True)
    for name, draw in FIGURES.items():
        draw(folder / f"{name}.svg")


def lemma(path: Path) -> None:
    from qkv.interpret.lemma import measure_lemma, plot_lemma

    plot_lemma(measure_lemma(), path)


def worked(example: str, mask: bool = False, steps: Sequence[str] = ("weights",)) -> Callable:
    """The attention weights of a worked example, one panel per step, with numbers."""

    def draw(path: Path) -> None:
        from dataclasses import replace

        from qkv.interpret.attention_walk import walk
        from qkv.interpret.examples import EXAMPLES
        from qkv.interpret.export.drawing import add_colorbar, draw_weights

        sheet = EXAMPLES[example]
        steps_by_name = walk(replace(sheet, causal=True) if mask else sheet)
        with paper(path, 3.4 * len(steps) + 0.6, 2.6) as figure:
            panels = figure.subplots(1, len(steps), squeeze=False)[0]
            for axes, name in zip(panels, steps, strict=True):
                step = steps_by_name[name]
                mask_grid = np.tri(*step.value.shape, dtype=bool) if mask else step.value >= 0
                image = draw_weights(axes, step.value, mask_grid)
                _label(axes, step.rows, step.columns, step.value, mask_grid)
                if len(steps) > 1:
                    axes.set_title(f"head {steps.index(name) + 1}", fontsize=9)
            add_colorbar(figure, image, list(panels))

    return draw


def family(preset: str, ids: dict[str, int]) -> Callable:
    """All heads of a preset with random weights, for this many tokens of each input."""

    def draw(path: Path) -> None:
        import qkv
        from qkv.interpret.export import draw_heads
        from qkv.interpret.trace import TokenizedInput, capture_trace

        model = qkv.build(qkv.preset(preset), seed=0).eval()
        tokens = TokenizedInput.from_ids(**{name: range(7, 7 + n) for name, n in ids.items()})
        metadata = {"model": f"{preset}, weights at random"}
        draw_heads(capture_trace(model, tokens, keep=["*.weights"], metadata=metadata), path)

    return draw


def _label(
    axes: "Axes",
    rows: Sequence[str],
    columns: Sequence[str],
    value: np.ndarray,
    mask_grid: np.ndarray,
) -> None:
    """Labels the rows and columns, and writes each number into its cell."""
    axes.set_yticks(range(len(rows)), labels=rows)
    axes.set_xticks(range(len(columns)), labels=columns)
    axes.set(xlabel="key →", ylabel="query ↓")
    axes.xaxis.set_label_position("top")
    axes.xaxis.tick_top()
    for (i, j), weight in np.ndenumerate(value):
        if mask_grid[i, j]:
            colour = "white" if weight > 0.3 else INK
            axes.text(j, i, f"{weight:.4f}", ha="center", va="center", color=colour)


FIGURES: dict[str, Callable[[Path], None]] = {
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
