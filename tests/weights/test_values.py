"""What comes out of a file is what safetensors' own reader finds there, bit for bit."""

import gc
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from tests.weights.written import content, entry, same
from torch import Tensor

import qkv.weights
from qkv.errors import BundleError
from qkv.weights import Weights, open_weights
from qkv.weights.safetensors_file import CONVERSION_BYTES

FLOATS = [torch.float64, torch.float32, torch.float16, torch.bfloat16]
SMALL = [torch.float8_e4m3fn, torch.float8_e5m2]
WHOLE = [torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8]
DTYPES = [*FLOATS, *SMALL, *WHOLE, torch.bool]
SHAPES = {"matrix": (5, 7), "vector": (11,), "scalar": (), "empty": (3, 0, 2), "cube": (2, 3, 13)}


def some(dtype: torch.dtype, shape: tuple[int, ...], seed: int = 0) -> Tensor:
    """Any bits at all, infinities and not-a-numbers among them."""
    chance = torch.Generator().manual_seed(seed)
    count = torch.Size(shape).numel() * dtype.itemsize
    bits = torch.randint(0, 2 if dtype == torch.bool else 256, (count,), generator=chance)
    return bits.to(torch.uint8).view(dtype).view(shape)


@pytest.fixture(params=DTYPES, ids=str)
def file(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    path = tmp_path / "some.safetensors"
    tensors = {name: some(request.param, shape) for name, shape in SHAPES.items()}
    save_file(tensors, path, metadata={"format": "pt", "über": "\n\0 ✓"})
    return path


@pytest.fixture
def floats(tmp_path: Path) -> Iterator[tuple[Path, Weights]]:
    path = tmp_path / "model.safetensors"
    save_file({"a": torch.arange(7.0), "b": torch.arange(11.0)}, path)
    with open_weights(path) as weights:
        yield path, weights


def test_the_package_exports_what_it_says() -> None:
    assert sorted(qkv.weights.__all__) == ["Weights", "open_weights"]
    assert all(hasattr(qkv.weights, name) for name in qkv.weights.__all__)


def test_every_tensor_is_the_one_safetensors_loads(file: Path) -> None:
    weights, expected = open_weights(file), load_file(file)
    assert set(weights) == set(expected) == set(SHAPES)
    for name, t in expected.items():
        assert weights.shape(name) == tuple(t.shape)
        assert weights.dtype(name) == t.dtype
        assert same(weights.read(name), t), name
        assert same(weights.mmap(name), t), name


def test_what_is_known_without_reading(file: Path) -> None:
    weights = open_weights(str(file))
    assert len(weights) == len(SHAPES)
    assert "cube" in weights
    assert "cub" not in weights
    assert None not in weights
    assert weights.nbytes == sum(t.nbytes for t in load_file(file).values())


@pytest.mark.parametrize("stored", DTYPES, ids=str)
@pytest.mark.parametrize("wanted", [torch.float32, torch.bfloat16], ids=str)
def test_a_conversion_is_torchs_own(
    stored: torch.dtype, wanted: torch.dtype, tmp_path: Path
) -> None:
    path = tmp_path / "model.safetensors"
    tensors = {name: some(stored, shape) for name, shape in SHAPES.items()}
    save_file(tensors, path)
    weights = open_weights(path)
    for name, t in tensors.items():
        converted, expected = weights.read(name, wanted), t.to(wanted)
        assert converted.dtype == wanted
        assert torch.equal(converted.isnan(), expected.isnan())
        assert same(converted.nan_to_num(), expected.nan_to_num()), name


def test_a_tensor_of_several_pieces_is_converted_whole(tmp_path: Path) -> None:
    count = 2 * CONVERSION_BYTES // 2 + 17  # bfloat16 takes two bytes
    t = torch.arange(count).remainder(251).to(torch.bfloat16)
    save_file({"one": torch.ones(3), "long": t}, tmp_path / "model.safetensors")
    assert torch.equal(open_weights(tmp_path).read("long", torch.float32), t.float())


def test_names_come_in_the_order_of_their_bytes(tmp_path: Path) -> None:
    header = {"a": entry("U8", [2], 3, 5), "z": entry("U8", [3], 0, 3), "n": entry("U8", [0], 3, 3)}
    (tmp_path / "model.safetensors").write_bytes(content(header, b"12345"))
    weights = open_weights(tmp_path)
    assert list(weights) == ["z", "n", "a"]
    assert weights.read("a").tolist() == [ord("4"), ord("5")]


def test_a_file_without_tensors_has_no_names(tmp_path: Path) -> None:
    save_file({}, tmp_path / "model.safetensors")
    weights = open_weights(tmp_path)
    assert list(weights) == []
    assert weights.nbytes == 0


@pytest.mark.parametrize("spaces", range(8))
def test_numbers_at_odd_offsets_are_the_same_numbers(spaces: int, tmp_path: Path) -> None:
    t = some(torch.float32, (5, 7))
    header = '{"t":{"dtype":"F32","shape":[5,7],"data_offsets":[0,140]}}' + " " * spaces
    (tmp_path / "model.safetensors").write_bytes(content(header, t.numpy().tobytes()))
    weights = open_weights(tmp_path)
    assert same(weights.mmap("t"), t)
    assert same(weights.read("t"), t)
    assert weights.mmap("t").data_ptr() % 4 == 0


def test_mapped_tensors_outlive_the_weights_and_the_file(floats: tuple[Path, Weights]) -> None:
    path, weights = floats
    a, b = weights.mmap("a"), weights.mmap("b")
    weights.close()
    path.unlink()
    del weights
    gc.collect()
    assert torch.equal(a, torch.arange(7.0))
    del a
    gc.collect()
    assert torch.equal(b + 1, torch.arange(1.0, 12.0))


def test_writing_to_a_mapped_tensor_leaves_the_file_alone(floats: tuple[Path, Weights]) -> None:
    path, weights = floats
    before = path.read_bytes()
    weights.mmap("a").fill_(-1)
    weights.mmap("b").add_(1)
    assert path.read_bytes() == before
    assert torch.equal(weights.read("a"), torch.arange(7.0))
    assert torch.equal(open_weights(path).mmap("a"), torch.arange(7.0))
    assert torch.equal(weights.mmap("a"), -torch.ones(7))  # as its docstring says


def test_mapping_copies_nothing_and_reading_shares_nothing(floats: tuple[Path, Weights]) -> None:
    _, weights = floats
    assert weights.mmap("a").data_ptr() == weights.mmap("a").data_ptr()
    one, other = weights.read("a"), weights.read("a")
    one.fill_(-1)
    assert torch.equal(other, torch.arange(7.0))


def test_weights_are_real_while_a_skeleton_is_built(floats: tuple[Path, Weights]) -> None:
    _, weights = floats
    with torch.device("meta"):
        made = weights.read("a"), weights.read("a", torch.float64), weights.mmap("a")
    for t in made:
        assert t.device.type == "cpu"
        assert t.tolist() == list(range(7))


def test_closed_weights_say_so(floats: tuple[Path, Weights]) -> None:
    _, weights = floats
    weights.close()
    weights.close()
    assert weights.shape("a") == (7,)
    for take in (weights.read, weights.mmap):
        with pytest.raises(BundleError, match=r"model\.safetensors has been closed; open it again"):
            take("a")


def test_weights_nobody_needs_any_more_leave_no_file_open(tmp_path: Path) -> None:
    save_file({"a": torch.ones(3)}, tmp_path / "model.safetensors")
    before = len(list(Path("/dev/fd").iterdir()))
    weights = open_weights(tmp_path)
    assert len(list(Path("/dev/fd").iterdir())) == before + 1
    del weights
    gc.collect()
    assert len(list(Path("/dev/fd").iterdir())) == before


def test_an_unknown_tensor_is_named(floats: tuple[Path, Weights]) -> None:
    path, weights = floats
    for ask in (weights.shape, weights.dtype, weights.read, weights.mmap):
        with pytest.raises(BundleError) as caught:
            ask("c\n")
        assert str(caught.value) == f"{path} has no tensor 'c\\n' among its 2"


@pytest.mark.parametrize("left", [0, 8, 100, -1])
def test_a_file_cut_off_after_opening_gives_an_error(
    left: int, floats: tuple[Path, Weights]
) -> None:
    path, weights = floats
    os.truncate(path, left % path.stat().st_size)
    for take in (weights.read, weights.mmap):
        with pytest.raises(BundleError, match=r"model\.safetensors (ends at|was written to)"):
            take("b")


def test_a_file_written_anew_after_opening_gives_an_error(floats: tuple[Path, Weights]) -> None:
    path, weights = floats
    before = path.stat()
    path.write_bytes(path.read_bytes())
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns + 10**9))
    with pytest.raises(BundleError, match="written to after it was opened"):
        weights.read("a")


def test_a_file_replaced_after_opening_is_still_the_old_one(floats: tuple[Path, Weights]) -> None:
    path, weights = floats
    save_file({"a": torch.zeros(2)}, path.with_name("new"))
    path.with_name("new").replace(path)
    assert torch.equal(weights.read("a"), torch.arange(7.0))
    assert torch.equal(weights.mmap("b"), torch.arange(11.0))


def test_a_bool_is_true_or_false(tmp_path: Path) -> None:
    header = {"t": entry("BOOL", [3], 0, 3)}
    (tmp_path / "model.safetensors").write_bytes(content(header, b"\0\1\2"))
    weights = open_weights(tmp_path)
    for take in (weights.read, weights.mmap, lambda name: weights.read(name, torch.float32)):
        with pytest.raises(BundleError, match="'t' is BOOL but holds bytes other than 0 and 1"):
            take("t")


def test_a_tensor_larger_than_the_memory_can_be_mapped_and_not_read(tmp_path: Path) -> None:
    count = 2**43  # bytes, of which none is on the disk
    path = tmp_path / "model.safetensors"
    path.write_bytes(content({"t": entry("U8", [count], 0, count)}))
    try:
        os.truncate(path, path.stat().st_size + count)
    except OSError:
        pytest.skip("this file system has no files of 8 TB")
    weights = open_weights(path)
    assert weights.mmap("t")[-1] == 0
    with pytest.raises(
        BundleError, match=r"'t' of shape \[8796093022208\] does not fit into memory"
    ):
        weights.read("t", torch.float64)
