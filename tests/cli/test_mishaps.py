"""What goes wrong around the program: a full disk, a closed place, Ctrl-C, an old Python."""

import os
import resource
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from qkv.bundle import Bundle
from qkv.model import Embedding, EncoderOnly, MultiHead, ReLU, Rope, Stack, TextVector, build
from qkv.text import Tokenizer

QKV = Path(sys.executable).with_name("qkv")
ALONE = {**os.environ, "OMP_NUM_THREADS": "1"}
SMALL = 900  # bytes that a file may have where the disk is "full"


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("mishaps")
    tokenizer = Tokenizer.train("bytes", ["a"], 300)
    stack = Stack(
        layers=1,
        width=12,
        attention=MultiHead(heads=3),
        feed_forward=ReLU(width=17),
        position=Rope(),
    )
    table = Embedding(vocabulary=tokenizer.vocab_size)
    torch.manual_seed(3)
    model = build(EncoderOnly(length=31, embedding=table, encoder=stack, output=TextVector()))
    Bundle(model, tokenizer).save(path / "vectors")
    (path / "texts.txt").write_text("a dog runs\na cat sleeps\n" * 200)
    return path


def run(workspace: Path, *arguments: str, max_bytes: int | None = None) -> tuple[int, str]:
    """The exit code and the last line on standard error; no traceback, whatever happens."""

    def limit_file_size() -> None:
        if max_bytes is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (max_bytes, max_bytes))

    process = subprocess.run(
        [QKV, *arguments], cwd=workspace, capture_output=True, text=True, env=ALONE,
        preexec_fn=limit_file_size, timeout=100,
    )  # fmt: skip
    assert "Traceback" not in process.stderr
    return process.returncode, process.stderr.split("\n")[-2]


WRITING = {
    "data": ("data", "classify", "-o", "new.tsv"),
    "embed": ("embed", "vectors", "--file", "texts.txt", "-o", "new.npy"),
    "cluster": ("cluster", "vectors", "texts.txt", "-k", "2", "-o", "new.csv"),
    "train": (
        "train", "language", "texts.txt", "-o", "new", "--size", "tiny", "--tokenizer", "bytes",
        "--context", "17", "--steps", "1",
    ),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("command", WRITING)
def test_a_file_that_cannot_grow_is_one_line(workspace: Path, command: str) -> None:
    code, message = run(workspace, *WRITING[command], max_bytes=SMALL)
    assert code == 2
    assert message.startswith("qkv: cannot write ")
    assert "File too large" in message
    assert not list(workspace.glob("new*.tsv"))


@pytest.fixture
def full(workspace: Path) -> Iterator[Path]:
    """A real file system of 64 kB with hardly any room left, where this user may mount one."""
    with tempfile.TemporaryDirectory(dir=workspace) as path:
        mount = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=64k", "none", path], capture_output=True
        )
        if mount.returncode:
            pytest.skip("needs the right to mount a small file system")
        try:
            yield Path(path)
        finally:
            subprocess.run(["umount", path], check=True)


def test_a_full_disk_says_what_to_do_and_leaves_nothing_half_written(
    workspace: Path, full: Path
) -> None:
    code, message = run(workspace, "data", "classify", "-o", str(full / "new.tsv"))
    assert code == 2
    assert message.endswith("No space left on device; free some space, or choose another directory")
    assert list(full.iterdir()) == []


@pytest.mark.skipif(not Path("/sys/kernel").is_dir(), reason="needs a place nobody may write to")
def test_a_place_that_is_closed_says_what_to_do(workspace: Path) -> None:
    code, message = run(workspace, "data", "classify", "-o", "/sys/kernel/new.tsv")
    assert code == 2
    assert message.startswith("qkv: cannot write /sys/kernel/new.tsv: ")
    assert message.endswith("; choose a directory you may write to")


@pytest.mark.slow
@pytest.mark.parametrize("options", ["--json", ""])
def test_a_reader_that_goes_away_is_no_error(workspace: Path, options: str) -> None:
    line = f"set -o pipefail; '{QKV}' embed vectors --file texts.txt {options} | head -n 1"
    process = subprocess.run(
        ["bash", "-c", line], cwd=workspace, capture_output=True, text=True, env=ALONE, timeout=100
    )
    assert (process.returncode, process.stderr) == (0, "")
    assert process.stdout.count("\n") == 1


def test_an_interrupt_while_it_waits_for_texts_exits_130(workspace: Path) -> None:
    def reset_sigint() -> (
        None
    ):  # a shell's background job ignores interrupts, and its children would too
        signal.signal(signal.SIGINT, signal.SIG_DFL)

    pipe = subprocess.PIPE
    with subprocess.Popen(
        [QKV, "embed", "vectors", "--json"], cwd=workspace, env=ALONE, preexec_fn=reset_sigint,
        stdin=pipe, stdout=pipe, stderr=pipe,
    ) as process:  # fmt: skip
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(b"a dog\n" * 5000)
        process.stdin.flush()
        process.stdout.readline()  # it has begun to answer, and waits for more
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert errors.split(b"\n")[-2] == b"interrupted"
    assert b"Traceback" not in errors


def test_an_old_python_is_told_at_once() -> None:
    code = "import sys; sys.version_info = (3, 9, 18, 'final', 0); import qkv.cli"
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert process.returncode == 2
    assert process.stderr.startswith(
        "qkv: Python 3.11 or later is needed, and this is 3.9.18; make "
    )
    assert process.stderr.count("\n") == 1
