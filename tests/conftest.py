"""What every test shares: one thread a worker, and where the shared data is, if it is."""

from pathlib import Path

import pytest
import torch

torch.set_num_threads(1)

SHARED = Path(__file__).parents[2] / "shared"


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of public weights and data that stands beside a developer's checkout."""
    if not SHARED.is_dir():
        pytest.skip("needs the shared folder of public weights beside the project")
    return SHARED
