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
def desk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("mishaps")
    reader = Tokenizer.train("bytes", ["a"], 300)
    stack = Stack(
        layers=1,
        width=12,
        attention=MultiHead(heads=3),
        feed_forward=ReLU(width=17),
        position=Rope(),
    )
    table = Embedding(vocabulary=reader.vocab_size)
    torch.manual_seed(3)
    model = build(EncoderOnly(length=31, embedding=table, encoder=stack, output=TextVector()))
    Bundle(model, reader).save(place / "vectors")
    (place / "texts.txt").write_text("a dog runs\na cat sleeps\n" * 200)
    return place


def run(desk: Path, *arguments: str, largest: int | None = None) -> tuple[int, str]:
    """The exit code and the last line on standard error; no traceback, whatever happens."""

    def limited() -> None:
        if largest is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (largest, largest))

    ran = subprocess.run(
        [QKV, *arguments], cwd=desk, capture_output=True, text=True, env=ALONE,
        preexec_fn=limited, timeout=100,
    )  # fmt: skip
    assert "Traceback" not in ran.stderr
    return ran.returncode, ran.stderr.split("\n")[-2]


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
def test_a_file_that_cannot_grow_is_one_line(desk: Path, command: str) -> None:
    code, said = run(desk, *WRITING[command], largest=SMALL)
    assert code == 2
    assert said.startswith("qkv: cannot write ")
    assert "File too large" in said
    assert not list(desk.glob("new*.tsv"))


@pytest.fixture
def full(desk: Path) -> Iterator[Path]:
    """A real file system of 64 kB with hardly any room left, where this user may mount one."""
    with tempfile.TemporaryDirectory(dir=desk) as place:
        mounted = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=64k", "none", place], capture_output=True
        )
        if mounted.returncode:
            pytest.skip("needs the right to mount a small file system")
        try:
            yield Path(place)
        finally:
            subprocess.run(["umount", place], check=True)


def test_a_full_disk_says_what_to_do_and_leaves_nothing_half_written(
    desk: Path, full: Path
) -> None:
    code, said = run(desk, "data", "classify", "-o", str(full / "new.tsv"))
    assert code == 2
    assert said.endswith("No space left on device; free some space, or choose another directory")
    assert list(full.iterdir()) == []


@pytest.mark.skipif(not Path("/sys/kernel").is_dir(), reason="needs a place nobody may write to")
def test_a_place_that_is_closed_says_what_to_do(desk: Path) -> None:
    code, said = run(desk, "data", "classify", "-o", "/sys/kernel/new.tsv")
    assert code == 2
    assert said.startswith("qkv: cannot write /sys/kernel/new.tsv: ")
    assert said.endswith("; choose a directory you may write to")


@pytest.mark.slow
@pytest.mark.parametrize("options", ["--json", ""])
def test_a_reader_that_goes_away_is_no_error(desk: Path, options: str) -> None:
    line = f"set -o pipefail; '{QKV}' embed vectors --file texts.txt {options} | head -n 1"
    ran = subprocess.run(
        ["bash", "-c", line], cwd=desk, capture_output=True, text=True, env=ALONE, timeout=100
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout.count("\n") == 1


def test_an_interrupt_while_it_waits_for_texts_exits_130(desk: Path) -> None:
    def hear() -> None:  # a shell's background job ignores interrupts, and its children would too
        signal.signal(signal.SIGINT, signal.SIG_DFL)

    pipe = subprocess.PIPE
    with subprocess.Popen(
        [QKV, "embed", "vectors", "--json"], cwd=desk, env=ALONE, preexec_fn=hear,
        stdin=pipe, stdout=pipe, stderr=pipe,
    ) as running:  # fmt: skip
        assert running.stdin is not None
        assert running.stdout is not None
        running.stdin.write(b"a dog\n" * 5000)
        running.stdin.flush()
        running.stdout.readline()  # it has begun to answer, and waits for more
        running.send_signal(signal.SIGINT)
        _, errors = running.communicate(timeout=60)
    assert running.returncode == 130
    assert errors.split(b"\n")[-2] == b"interrupted"
    assert b"Traceback" not in errors


def test_an_old_python_is_told_at_once() -> None:
    code = "import sys; sys.version_info = (3, 9, 18, 'final', 0); import qkv.cli"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert ran.returncode == 2
    assert ran.stderr.startswith("qkv: Python 3.11 or later is needed, and this is 3.9.18; make ")
    assert ran.stderr.count("\n") == 1
