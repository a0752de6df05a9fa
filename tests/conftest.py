"""What every test shares: one thread a worker, a cache of its own, and where the shared data is."""

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

torch.set_num_threads(1)

SHARED = Path(__file__).parents[2] / "shared"


@pytest.fixture(scope="session", autouse=True)
def own_cache(
    tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config
) -> Iterator[None]:
    """A cache directory of this session, never the user's.

    Only compiled kernels are stored where the next run and the other workers find them.
    """
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("QKV_CACHE", str(tmp_path_factory.mktemp("cache")))
        if "QKV_KERNEL_CACHE" not in os.environ and pytestconfig.cache is not None:
            environment.setenv("QKV_KERNEL_CACHE", str(pytestconfig.cache.mkdir("kernels")))
        yield


@pytest.fixture
def qkv(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str, str]]:
    """The program in this process: its exit code, standard output and standard error."""
    from qkv.cli.app import main

    def run(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["qkv", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main()
        said = capsys.readouterr()
        return int(ended.value.code or 0), said.out, said.err

    return run


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of public weights and data that stands beside a developer's checkout."""
    if not SHARED.is_dir():
        pytest.skip("needs the shared folder of public weights beside the project")
    return SHARED
