"""Attributes of a package that are imported when they are first used.

A package whose modules import torch, scikit-learn or matplotlib stays cheap to import this way.
"""

from collections.abc import Callable
from importlib import import_module

from qkv.gc_pause import gc_paused


def lazy_attributes(package: str, names: dict[str, tuple[str, ...]]) -> Callable[[str], object]:
    """The `__getattr__` of `package`; `names` lists what each module defines."""
    module_of = {name: module for module in names for name in names[module]}

    def get_attribute(name: str) -> object:
        if name not in module_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        with gc_paused():
            return getattr(import_module(module_of[name]), name)

    return get_attribute
