"""The kernel tests under the address and undefined-behaviour sanitizers."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.kernels.native import needs_compiler

from qkv.machine.resources import find_compiler

HERE = Path(__file__).parent


def runtime(name: str) -> str | None:
    """The sanitizer's runtime, which has to be loaded before Python itself."""
    compiler = find_compiler()
    if compiler is None or sys.platform != "linux":
        return None
    command = [*compiler, f"-print-file-name={name}"]
    path = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    return path if Path(path).is_absolute() else None


@needs_compiler
@pytest.mark.slow
@pytest.mark.skipif(runtime("libasan.so") is None, reason="the compiler has no libasan.so")
@pytest.mark.parametrize("tests", ["test_inference_kernels.py", "test_training_kernels.py"])
def test_no_kernel_leaves_its_memory_or_relies_on_undefined_behaviour(tests: str) -> None:
    environment = {
        **os.environ,
        "LD_PRELOAD": f"{runtime('libasan.so')} {runtime('libubsan.so')}",
        # Python itself never frees everything.
        "ASAN_OPTIONS": "detect_leaks=0",
        "UBSAN_OPTIONS": "print_stacktrace=1",
        "QKV_KERNEL_FLAGS": "-fsanitize=address,undefined -fno-sanitize-recover=all -g -O1",
    }
    command = [sys.executable, "-m", "pytest", "-q", "-s", "-x", "-n", "0", "-m", "", HERE / tests]
    process = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert process.returncode == 0, process.stderr[:2000] + process.stdout[-2000:]
