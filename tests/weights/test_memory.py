"""Opening and mapping take next to no memory, and reading takes that of the result."""

import os
import subprocess
import sys
import tracemalloc
from pathlib import Path

import pytest
from tests.weights.written import content, entry

from qkv.errors import BundleError
from qkv.weights import open_weights

MB = 2**20
TENSORS, EACH = 8, 25 * MB
linux = pytest.mark.skipif(sys.platform != "linux", reason="asks Linux for the peak of a process")


@pytest.fixture
def large(tmp_path: Path) -> Path:
    """200 MB of bfloat16 zeros, none of them on the disk."""
    path = tmp_path / "model.safetensors"
    places = {f"t{i}": entry("BF16", [EACH // 2], i * EACH, (i + 1) * EACH) for i in range(TENSORS)}
    path.write_bytes(content(places))
    os.truncate(path, path.stat().st_size + TENSORS * EACH)
    return path


def taken(path: Path, how: str) -> tuple[int, int]:
    """The size of the tensors, and the memory it took to get them, in bytes."""
    script = Path(__file__).with_name("take_memory.py")
    command = [sys.executable, str(script), str(path), how]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    size, memory = map(int, done.stdout.split())
    return size, memory


@linux
def test_mapping_takes_no_memory(large: Path) -> None:
    size, memory = taken(large, "map")
    assert size == TENSORS * EACH
    assert memory < 10 * MB


@pytest.mark.slow
@linux
def test_reading_takes_the_memory_of_the_result_and_of_one_tensor_at_most(large: Path) -> None:
    size, memory = taken(large, "read")
    assert size == 2 * TENSORS * EACH
    assert size - MB < memory < size + EACH + EACH // 4


def test_a_hostile_header_takes_no_more_memory_than_its_bytes_several_times(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(content('{"t":[' + "[]," * (2 * MB) + "[]]}"))
    tracemalloc.start()
    try:
        with pytest.raises(BundleError):
            open_weights(path)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 3 * path.stat().st_size  # json.loads takes some thirty times as much
