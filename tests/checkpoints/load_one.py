"""Loads the checkpoint it is given and prints how much higher the peak of memory is, in bytes."""

import sys
from pathlib import Path

import torch

from qkv.checkpoints import read_checkpoint


def peak() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1]) * 1024
    raise SystemExit("this system does not tell its memory")


torch.set_num_threads(1)
before = peak()
model = read_checkpoint(Path(sys.argv[1])).model
total = sum(float(p.detach().flatten()[::1024].sum()) for p in model.parameters())  # every page
print(peak() - before, sum(p.nbytes for p in model.parameters()), total)
