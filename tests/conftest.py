"""What every test shares: one thread a worker, a cache of its own, and where the shared data is."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

torch.set_num_threads(1)

SHARED = Path(__file__).parents[2] / "shared"


@pytest.fixture(scope="session", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Tokens are kept in a folder of this session, never in the user's cache."""
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("QKV_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of public weights and data that stands beside a developer's checkout."""
    if not SHARED.is_dir():
        pytest.skip("needs the shared folder of public weights beside the project")
    return SHARED
