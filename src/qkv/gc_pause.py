"""When Python looks for garbage.

It looks each time so many objects have been made. Importing torch and reading a vocabulary make
hundreds of thousands that are all there to stay, and looking through them again and again takes a
good part of the time until the first answer.
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def gc_paused() -> Iterator[None]:
    """Inside, nobody looks for garbage; what is made here is there to stay."""
    looking = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if looking:
            gc.enable()
