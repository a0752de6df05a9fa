"""Opens, maps or reads all tensors of the file named, and prints how much memory that took.

    python take_memory.py FILE map|read

The peak is the one the system keeps for this program alone; `getrusage` would begin with that of
the process that started it.
"""

import re
import sys
from pathlib import Path

import torch
from safetensors.torch import save_file

from qkv.weights import open_weights


def peak() -> int:
    """The most memory this process ever had, in bytes."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found
    return int(found[1]) * 1024


def take(path: Path, how: str) -> list[torch.Tensor]:
    weights = open_weights(path)
    if how == "map":
        return [weights.mmap(name) for name in weights]
    return [weights.read(name, torch.float32) for name in weights]


if __name__ == "__main__":
    path, how = Path(sys.argv[1]), sys.argv[2]
    small = path.with_name("small.safetensors")
    save_file({"a": torch.ones(3, dtype=torch.bfloat16)}, small)
    take(small, how)  # what the libraries need is not counted
    before = peak()
    tensors = take(path, how)
    print(sum(t.nbytes for t in tensors), peak() - before)
