"""What only a real process shows: how fast it starts, what it imports, pipes and interrupts."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

QKV = Path(sys.executable).with_name("qkv")


def fastest(*command: str | Path, times: int = 5) -> float:
    def once() -> float:
        start = time.perf_counter()
        subprocess.run(command, check=True, capture_output=True)
        return time.perf_counter() - start

    return min(once() for _ in range(times))


@pytest.mark.parametrize("option", ["--help", "--version"])
def test_help_and_version_answer_at_once(option: str) -> None:
    assert fastest(QKV, option) < 0.4


def test_importing_the_package_is_cheap() -> None:
    assert fastest(sys.executable, "-c", "import qkv") < 0.2


@pytest.mark.parametrize("code", ["import qkv", "import qkv.cli.app", "import qkv; dir(qkv)"])
def test_torch_is_not_imported_before_it_is_needed(code: str) -> None:
    script = f"{code}; import sys; print({{'torch', 'numpy', 'pydantic'}} & sys.modules.keys())"
    process = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert process.stdout.strip() == "set()"


@pytest.mark.parametrize(
    "arguments",
    [
        ["explain"],
        ["explain", "--mask", "causal", "--cell", "poem,write"],
        ["explain", "--example", "heads", "--json"],
        ["explain", "-o", "poem.html"],
        ["explain", "-o", "poem.png"],
        ["worksheet", "--quiz"],
    ],
    ids=" ".join,
)
def test_the_worked_example_needs_no_torch(arguments: list[str], tmp_path: Path) -> None:
    script = (
        "import atexit, sys\n"
        "atexit.register(lambda: print('torch' in sys.modules, file=sys.stderr))\n"
        "from qkv.cli import main\nmain()\n"
    )
    process = subprocess.run(
        [sys.executable, "-c", script, *arguments], cwd=tmp_path, capture_output=True, text=True
    )
    assert process.returncode == 0
    assert process.stderr.splitlines()[-1] == "False"


def test_a_reader_that_goes_away_is_no_error() -> None:
    command = f"'{QKV}' explain | head -n 1"
    process = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {command}"], capture_output=True, text=True
    )
    assert process.returncode == 0
    assert process.stderr == ""


def test_a_terminal_without_unicode_still_gets_an_answer() -> None:
    environment = {**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    process = subprocess.run(
        [QKV, "explain", "--steps", "scores"], capture_output=True, env=environment
    )
    assert process.returncode == 0
    assert b"write matches" in process.stdout.replace(b"*", b"")


def test_a_terminal_without_a_minus_sign_gets_a_hyphen() -> None:
    environment = {**os.environ, "PYTHONIOENCODING": "latin-1", "PYTHONUTF8": "0"}
    command = [QKV, "explain", "--steps", "scores"]
    process = subprocess.run(command, capture_output=True, env=environment)
    assert b"-0.0939   0.0619  -0.6198" in process.stdout
    assert b"?" not in process.stdout


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_a_full_disk_is_one_clear_line() -> None:
    with Path("/dev/full").open("w") as full:
        process = subprocess.run([QKV, "explain"], stdout=full, stderr=subprocess.PIPE, text=True)
    assert process.returncode == 2
    assert process.stderr == "qkv: cannot write the output: No space left on device\n"


def _reset_sigint() -> None:
    """A shell's background job ignores them, and its children would too."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def test_an_interrupt_exits_130(tmp_path: Path) -> None:
    pipe = subprocess.PIPE
    command = [QKV, "tour", "--quick", "-o", tmp_path / "tour"]
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, preexec_fn=_reset_sigint) as process:
        assert process.stdout is not None
        process.stdout.readline()  # it has started
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert b"Traceback" not in errors
