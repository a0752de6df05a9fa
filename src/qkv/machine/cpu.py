"""The processor: its name, and the instructions that decide how fast a model is on it."""

import platform
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

# What each is called here, in torch, and by Linux; any of these names will do.
FEATURES: dict[str, tuple[str, ...]] = {
    "AVX2": ("avx2",),
    "AVX-512": ("avx512_f", "avx512f"),
    "VNNI": ("avx512_vnni", "avx_vnni"),
    "AMX": ("amx_tile", "amx_int8", "amx_bf16"),
    "bf16": ("avx512_bf16", "amx_bf16", "arm_bf16", "bf16"),
}


@dataclass(frozen=True)
class Cpu:
    name: str
    architecture: str
    physical: int | None  # cores, if that can be told from threads
    features: dict[str, bool]


def cpu(system: Path = Path("/")) -> Cpu:
    """The processor of this machine; without torch, what Linux says of it."""
    told = _told_by_linux(system)
    try:
        import torch

        seen: Mapping[str, object] = torch.cpu.get_capabilities()
    except (ImportError, OSError, AttributeError):
        seen = dict.fromkeys(told.get("flags", "").split(), True)
    physical = seen.get("num_physical_cores")
    return Cpu(
        name=told.get("model name") or _told_by_macos() or platform.processor() or "unknown",
        architecture=platform.machine(),
        physical=physical if isinstance(physical, int) else None,
        features={
            name: any(bool(seen.get(alias)) for alias in aliases)
            for name, aliases in FEATURES.items()
        },
    )


def _told_by_linux(system: Path) -> dict[str, str]:
    """The lines about the first core, by their names."""
    try:
        first = (system / "proc/cpuinfo").read_text("utf-8").split("\n\n")[0]
    except (OSError, UnicodeDecodeError):
        return {}
    rows = (line.split(":", 1) for line in first.split("\n") if ":" in line)
    return {name.strip(): value.strip() for name, value in rows}


def _told_by_macos() -> str:
    if platform.system() != "Darwin":
        return ""
    asked = ["/usr/sbin/sysctl", "-n", "machdep.cpu.brand_string"]
    try:
        ran = subprocess.run(asked, capture_output=True, text=True, timeout=5, check=True)
    except (OSError, subprocess.SubprocessError):
        return ""
    return ran.stdout.strip()
