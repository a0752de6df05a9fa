"""What somebody may have meant who named a file that is not there."""

from difflib import get_close_matches
from pathlib import Path


def nearest(path: Path) -> Path | None:
    """The entry of the same folder whose name is most alike, if one is; endings count for little.

    Two names are not alike because both end in .txt; but reviews.txt is meant for reviews.csv.
    """
    try:
        entries = sorted(entry for entry in path.parent.iterdir() if entry.name[:1] != ".")
    except OSError:
        return None
    stems: dict[str, Path] = {}
    for entry in sorted(entries, key=lambda entry: entry.suffix != path.suffix):
        stems.setdefault(entry.stem.lower(), entry)
    near = get_close_matches(path.stem.lower(), stems, n=1, cutoff=0.7)
    return path.with_name(stems[near[0]].name) if near else None


def did_you_mean(path: Path) -> str:
    """The end of a sentence about a file that is not there: what may be meant, or nothing."""
    if not path.parent.is_dir():
        return f"; there is no folder {path.parent} either"
    near = nearest(path)
    return "" if near is None else f'; did you mean "{near}"?'
