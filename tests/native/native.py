"""Whether this machine can compile, for the tests that need it."""

import shutil

import pytest

from qkv.native.build import COMPILERS

needs_compiler = pytest.mark.skipif(
    not any(map(shutil.which, COMPILERS)), reason="there is no C++ compiler"
)
