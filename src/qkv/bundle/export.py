"""A bundle as a public checkpoint, written whole or not at all."""

import shutil
import tempfile
from pathlib import Path

from safetensors import SafetensorError

from qkv.bundle.bundle import Bundle
from qkv.errors import BundleError
from qkv.layout.write import Written, write_checkpoint


def export(bundle: Bundle, place: Path) -> Written:
    """Write the directory that other programs read, and say in which layout."""
    if place.exists() and (not place.is_dir() or any(place.iterdir())):
        raise BundleError(f"{place} holds something already; choose another place")
    preferred = None if bundle.card is None else bundle.card.layout
    staging: Path | None = None
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        staging = Path(tempfile.mkdtemp(prefix=f".{place.name}.new-", dir=place.parent))
        written = write_checkpoint(bundle.model, bundle.tokenizer, staging, preferred)
        staging.chmod(0o755)
        for path in staging.rglob("*"):
            path.chmod(0o755 if path.is_dir() else 0o644)
        if place.exists():
            place.rmdir()
        staging.rename(place)
    except (OSError, SafetensorError) as error:
        raise BundleError(
            f"cannot write {place}: {getattr(error, 'strerror', None) or error}"
        ) from error
    finally:
        if staging is not None:
            shutil.rmtree(staging, ignore_errors=True)
    return written
