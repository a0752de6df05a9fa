"""Pausing the garbage collector while many long-lived objects are created.

CPython's cyclic collector runs whenever so many objects have been allocated. Importing torch and
reading a vocabulary allocate hundreds of thousands that all stay alive, and scanning them again and
again takes a good part of the time until the first answer.
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def gc_paused() -> Iterator[None]:
    """Disable the garbage collector inside; nested uses restore what they met."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
