"""What stands where a model was looked for and there is none, and what to do about it."""

import re
from pathlib import Path

from qkv.files.nearest import nearest

MANIFEST, CONFIG = "MANIFEST.json", "config.json"
RECIPE = "recipe.toml"  # of a training
WEIGHTS = (".safetensors", ".gguf", ".bin", ".pt", ".pth", ".ckpt", ".h5", ".onnx", ".msgpack")
ON_A_HUB = re.compile(r"[\w.-]+/[\w.-]+")  # somebody/some-model


def no_model(place: Path) -> str:
    """One sentence for a path that is neither a bundle nor a public checkpoint."""
    if not place.exists():
        return _absent(place)
    return _no_directory(place) if not place.is_dir() else _no_model_in(place)


def _absent(place: Path) -> str:
    said = f"{place} is not a directory that exists"
    near = nearest(place)
    if near is not None:
        return f'{said}; did you mean "{near}"?'
    if ON_A_HUB.fullmatch(str(place)) and not place.parent.is_dir():
        return (
            f"{said}; one of your own is made by qkv train, and one from a hub is fetched first, "
            f"as with: hf download {place} --local-dir {place.name}"
        )
    return f"{said}; give that of a model made by qkv train, or of a downloaded one"


def _no_directory(place: Path) -> str:
    if place.suffix.lower() == ".gguf":
        return f"{place} does not begin as a GGUF file does; it is damaged, so get it again"
    if place.suffix.lower() in WEIGHTS or place.name in (MANIFEST, CONFIG):
        return f"{place} is not a directory but a file of one; give the directory: {place.parent}"
    return f"{place} is not a directory but a file; give the directory of a model, or a .gguf file"


def _no_model_in(place: Path) -> str:
    names = sorted(entry.name for entry in place.iterdir())
    if not names:
        return f"{place} is no model: it is empty; give the directory of one"
    if RECIPE in names:
        return (
            f"{place} is no model yet: its training has not ended; go on with: "
            f"qkv train JOB -o {place} --resume"
        )
    inside = [name for name in names if _is_model(place / name)]
    if inside:
        more = f" or {len(inside) - 1} others in it" if len(inside) > 1 else ""
        return f"{place} is no model but holds some; give {place / inside[0]}{more}"
    weights = [name for name in names if Path(name).suffix.lower() in WEIGHTS]
    if weights and CONFIG not in names:
        return (
            f"{place} is no model: it holds weights ({weights[0]}) but no {CONFIG}, which says "
            "what they are; put the one they came with beside them"
        )
    return (
        f"{place} is no model: it has neither the {MANIFEST} of a bundle nor the {CONFIG} of a "
        "public checkpoint"
    )


def _is_model(place: Path) -> bool:
    return place.is_dir() and ((place / MANIFEST).exists() or (place / CONFIG).exists())
