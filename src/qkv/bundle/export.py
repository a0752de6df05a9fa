"""A bundle as a public checkpoint, written whole or not at all."""

from pathlib import Path

from qkv.bundle.bundle import Bundle
from qkv.bundle.manifest import publish
from qkv.errors import BundleError
from qkv.layout.write import Written, write_checkpoint


def export(bundle: Bundle, place: Path) -> Written:
    """Write the directory that other programs read, and say in which layout."""
    if place.exists() and (not place.is_dir() or any(place.iterdir())):
        raise BundleError(f"{place} holds something already; choose another place")
    preferred = None if bundle.card is None else bundle.card.layout
    written: list[Written] = []

    def write(staging: Path) -> None:
        written.append(write_checkpoint(bundle.model, bundle.tokenizer, staging, preferred))

    publish(place, write, sealed=False)
    return written[0]
