from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.serve.running_server import RunningServer, serving
from tests.serve.tiny_bundles import write_all


@pytest.fixture(scope="session")
def bundles(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return write_all(tmp_path_factory.mktemp("served"))


@pytest.fixture(scope="session")
def server(bundles: dict[str, Path]) -> Iterator[RunningServer]:
    """One server of all tiny models for every test that leaves it as it was."""
    with serving(*(f"{name}={path}" for name, path in bundles.items())) as running:
        yield running
        assert running.stop() == 0
