"""Whether this machine can compile, and multiply in 8 bits, for the tests that need it."""

import pytest

from qkv.engine.optimized import int8_supported
from qkv.machine.resources import find_compiler

needs_compiler = pytest.mark.skipif(find_compiler() is None, reason="there is no C++ compiler")
needs_int8 = pytest.mark.skipif(
    not int8_supported(), reason="torch does not multiply in 8 bits on this CPU"
)
INT8_WAYS = [  # without and with compiled kernels
    pytest.param(False, marks=needs_int8, id="torch"),
    pytest.param(True, marks=needs_compiler, id="kernels"),
]
