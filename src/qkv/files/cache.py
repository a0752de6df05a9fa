"""Where things are kept that can be made again."""

import os
from pathlib import Path


def cache_home() -> Path:
    """QKV_CACHE if that is set, else where programs keep such things."""
    if chosen := os.environ.get("QKV_CACHE"):
        return Path(chosen)
    if shared := os.environ.get("XDG_CACHE_HOME"):
        return Path(shared) / "qkv"
    return Path("~/.cache/qkv").expanduser()
