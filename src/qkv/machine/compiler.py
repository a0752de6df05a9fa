"""Whether there is a C++ compiler."""

import os
import shutil

COMPILERS = ("c++", "g++", "clang++")


def find_compiler() -> str | None:
    """The one that CXX names, or the first there is."""
    asked = os.environ.get("CXX")
    found = map(shutil.which, (asked,) if asked else COMPILERS)
    return next(filter(None, found), None)
