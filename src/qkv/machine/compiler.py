"""Whether there is a C++ compiler."""

import os
import shlex
import shutil

COMPILERS = ("c++", "g++", "clang++")


def find_compiler() -> list[str] | None:
    """The command that CXX names, or the first compiler there is."""
    asked = shlex.split(os.environ.get("CXX", ""))
    for name, *more in [asked] if asked else [[name] for name in COMPILERS]:
        if found := shutil.which(name):
            return [found, *more]
    return None
