"""The number of threads: it follows the load of the machine unless somebody sets it."""

import subprocess
import sys
import time
from collections.abc import Iterator
from threading import Thread

import pytest
import torch

import qkv
from qkv.machine import adapt_threads, cores
from qkv.machine.threads import CpuReading, available_cores, suggest_threads

BUSY = "while True: pass"

MIN_CORES = pytest.mark.skipif(cores().usable < 2, reason="one core leaves nothing to decide")


@pytest.fixture
def two_threads() -> Iterator[None]:
    """Torch with two threads that no earlier test has fixed."""
    before = torch.get_num_threads()
    qkv.set_threads(None)
    torch.set_num_threads(2)
    yield
    qkv.set_threads(None)
    torch.set_num_threads(before)


@pytest.fixture
def busy_neighbours() -> Iterator[None]:
    """A process on every core that never waits, and twice that, so that none is left to us."""
    processes = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(2 * cores().usable)]
    yield
    for process in processes:
        process.kill()
        process.wait()


def adapt_for(seconds: float) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        adapt_threads()
        time.sleep(0.02)


def reading(time: float, idle: float, own: float) -> CpuReading:
    return CpuReading(time, idle, own, cores=3)


@pytest.mark.parametrize(
    ("idle", "own", "available"),
    [
        (6.0, 0.0, 3.0),  # nobody computes
        (0.0, 6.0, 3.0),  # only this process
        (2.0, 2.0, 2.0),  # another process holds one core
        (0.0, 2.0, 1.0),  # others hold two
        (0.0, 0.0, 0.0),  # all
        (6.2, 0.1, 3.0),  # rounded counts never give more than there is
    ],
)
def test_the_cores_of_others_are_not_available(idle: float, own: float, available: float) -> None:
    assert available_cores(reading(7, 1, 1), reading(9, 1 + idle, 1 + own)) == available


@pytest.mark.parametrize(
    ("available", "limit", "threads"),
    [(4.0, 4, 4), (3.7, 4, 4), (3.5, 4, 3), (3.0, 4, 3), (4.0, 2, 2), (0.1, 4, 1), (1.3, 2, 1)],
)
def test_a_thread_per_core_that_is_mostly_available(
    available: float, limit: int, threads: int
) -> None:
    assert suggest_threads(available, limit) == threads


@MIN_CORES
def test_threads_are_given_up_next_to_busy_processes(
    two_threads: None, busy_neighbours: None
) -> None:
    adapt_for(1.8)
    assert torch.get_num_threads() == 1


@MIN_CORES
def test_a_fixed_number_of_threads_ignores_the_load(
    two_threads: None, busy_neighbours: None
) -> None:
    qkv.set_threads(2)
    adapt_for(1.2)
    assert torch.get_num_threads() == 2


def test_a_program_that_sets_torch_to_one_thread_gets_no_more() -> None:
    """In a thread of its own, since torch's number of threads is per thread."""
    numbers = []

    def run() -> None:
        torch.set_num_threads(1)
        adapt_for(0.6)
        numbers.append(torch.get_num_threads())

    thread = Thread(target=run)
    thread.start()
    thread.join()
    assert numbers == [1]


def test_more_threads_than_cores_are_refused() -> None:
    usable = cores().usable
    with pytest.raises(qkv.UsageError, match=f"threads={usable + 1} is not between 1 and {usable}"):
        qkv.set_threads(usable + 1)
