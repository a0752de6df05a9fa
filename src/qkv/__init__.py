"""qkv (query, key, value): the glass-box Transformer toolkit.

    import qkv
    out = qkv.attend(q, k, v, mask=qkv.Mask.causal())
    model = qkv.build(qkv.preset("language-small"))
    vectors = qkv.load("models/all-MiniLM-L6-v2").embed(["a dog", "a cat"])
    trace = qkv.load("runs/book").trace("Once upon a time")

Importing the package is cheap: a name below brings in torch only when it is first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from qkv.gc_pause import gc_paused

__version__ = "0.1.0"

_HOME = {
    "Bundle": "qkv.bundle",
    "Engine": "qkv.engine.engine",
    "GlassBox": "qkv.interpret.glass_box",
    "KVCache": "qkv.attention",
    "Mask": "qkv.attention",
    "QkvError": "qkv.errors",
    "Trace": "qkv.interpret.trace",
    "attend": "qkv.attention",
    "build": "qkv.model",
    "load": "qkv.interpret.glass_box",
    "preset": "qkv.model",
    "reference": "qkv.attention",
}

__all__ = [
    "Bundle",
    "Engine",
    "GlassBox",
    "KVCache",
    "Mask",
    "QkvError",
    "Trace",
    "__version__",
    "attend",
    "build",
    "load",
    "preset",
    "reference",
]

if TYPE_CHECKING:
    from qkv.attention import KVCache, Mask, attend, reference
    from qkv.bundle import Bundle
    from qkv.engine.engine import Engine
    from qkv.errors import QkvError
    from qkv.interpret.glass_box import GlassBox, load
    from qkv.interpret.trace import Trace
    from qkv.model import build, preset


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module 'qkv' has no attribute {name!r}")
    with gc_paused():
        return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
