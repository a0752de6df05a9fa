"""Whether this machine can compile, for the tests that need it."""

import pytest

from qkv.machine.compiler import find_compiler

needs_compiler = pytest.mark.skipif(find_compiler() is None, reason="there is no C++ compiler")
