"""The lemma as a picture: the variance against its theory, and what happens to the softmax."""

from pathlib import Path

from qkv.errors import UsageError
from qkv.explain.lemma import KEYS, Lemma

FORMATS = (".png", ".svg", ".pdf")


def check_picture(path: Path) -> None:
    """The path must end in a format that can be drawn, in a folder that exists."""
    if path.suffix.lower() not in FORMATS:
        raise UsageError(f'cannot draw "{path.name}"; end it with one of {", ".join(FORMATS)}')
    if path.is_dir():
        raise UsageError(f"{path} is a folder; name a file in it")
    if not path.parent.is_dir():
        raise UsageError(f"{path.parent} is not a folder; make it first")


def draw_lemma(lemma: Lemma, path: Path) -> None:
    """Write the picture in the format that the path ends with."""
    check_picture(path)
    import matplotlib as mpl
    from matplotlib.figure import Figure

    widths = [row.d_k for row in lemma.rows]
    # The same bytes for the same numbers: no date, no random ids.
    with mpl.rc_context({"svg.hashsalt": "qkv", "font.size": 9}):
        picture = Figure(figsize=(9.0, 3.6), layout="constrained")
        variance, weight = picture.subplots(1, 2)

        low = [row.variance - row.variance_low for row in lemma.rows]
        high = [row.variance_high - row.variance for row in lemma.rows]
        measured = [row.variance for row in lemma.rows]
        variance.plot(widths, widths, color="0.6", label="theory: d_k")
        variance.errorbar(widths, measured, yerr=[low, high], fmt="o", label="q·k")
        scaled = [row.scaled_variance for row in lemma.rows]
        variance.plot(widths, scaled, "s", color="C2", label="q·k ÷ √d_k")
        variance.axhline(1.0, color="0.6", linestyle="--", label="theory: 1")
        variance.set(xscale="log", yscale="log", xlabel="d_k", ylabel="variance")
        variance.set_title("The variance of q·k is d_k")

        for name, marker, colour in (("unscaled", "o", "C0"), ("scaled", "s", "C2")):
            largest = [getattr(row, name).largest for row in lemma.rows]
            label = "without ÷ √d_k" if name == "unscaled" else "with ÷ √d_k"
            weight.plot(widths, largest, f"{marker}-", color=colour, label=label)
        weight.axhline(1 / KEYS, color="0.6", linestyle="--", label=f"all {KEYS} keys alike")
        weight.set(xscale="log", xlabel="d_k", ylabel="largest weight", ylim=(0, 1.02))
        weight.set_title("Without the division, softmax chooses one key")
        for axes in (variance, weight):
            axes.legend(frameon=False)
        metadata = {"Date": None} if path.suffix.lower() == ".svg" else None
        try:
            picture.savefig(path, dpi=150, metadata=metadata)
        except OSError as error:
            raise UsageError(f"cannot write {path}: {error.strerror or error}") from error
