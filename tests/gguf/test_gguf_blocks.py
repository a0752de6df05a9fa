"""Every packing gives the bits that llama.cpp's own library gives."""

import numpy as np
import pytest
import torch
from tests.gguf.written_gguf import Kind, gguf, write

from qkv.errors import BundleError
from qkv.gguf import open_gguf
from qkv.gguf.quants import GGML_TYPES, SUPPORTED_TYPES

ROWS, WIDTH = 37, 512


@pytest.fixture
def values() -> np.ndarray:
    random = np.random.default_rng(3)
    values = random.normal(size=(ROWS, WIDTH)).astype(np.float32)
    values[5] = 0  # a scale of zero
    return values * np.float32(10.0) ** random.integers(-4, 4, size=(ROWS, 1)).astype(np.float32)


def random_blocks(kind) -> np.ndarray:
    """Any bytes, but for the top of each exponent: a scale is never infinite."""
    numbers, size = gguf.GGML_QUANT_SIZES[kind]
    shape = (ROWS, WIDTH // numbers, size)
    raw = np.random.default_rng(5).integers(0, 256, size=shape, dtype=np.uint8)
    scales = {"Q6_K": [209], "Q4_K": [1, 3], "Q5_K": [1, 3], "Q4_1": [1, 3], "Q5_1": [1, 3]}
    raw[..., scales.get(kind.name, [1])] &= 0xBF
    return raw.reshape(ROWS, -1)


def test_the_sizes_of_all_kinds_are_the_library_s() -> None:
    ours = {id: (t.name, t.block_size, t.block_bytes) for id, t in GGML_TYPES.items()}
    theirs = {k.value: (k.name, *gguf.GGML_QUANT_SIZES[k]) for k in gguf.GGML_QUANT_SIZES}
    assert ours == theirs


@pytest.mark.parametrize("name", ["F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1"])
def test_quantised_values_are_unpacked_to_the_bit(name, values, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("qkv.gguf.metadata.CHUNK", 2048)  # several chunks, the last one shorter
    kind = Kind[name]
    found = open_gguf(write(tmp_path / "x.gguf", "llama", [("a", values, kind)]))
    expected = gguf.quants.dequantize(gguf.quants.quantize(values, kind), kind)
    assert found.names == ("a",)
    assert found.shape("a") == (ROWS, WIDTH)
    assert found.type_name("a") == name
    assert torch.equal(found.read("a"), torch.from_numpy(expected.copy()))
    assert torch.equal(found.mmap("a"), found.read("a"))
    assert torch.equal(found.read("a", torch.bfloat16), found.read("a").bfloat16())


@pytest.mark.parametrize("name", SUPPORTED_TYPES)
def test_any_bytes_are_unpacked_to_the_bit(name) -> None:
    kind = Kind[name]
    raw = random_blocks(kind)
    ours = GGML_TYPES[kind.value].decode(raw.reshape(-1, gguf.GGML_QUANT_SIZES[kind][1]))
    theirs = gguf.quants.dequantize(raw, kind)
    assert np.array_equal(ours.reshape(theirs.shape), theirs, equal_nan=True)


def test_an_infinite_scale_gives_no_warning(tmp_path) -> None:
    raw = np.zeros((1, 34), np.uint8)
    raw[0, :2] = np.array([np.inf], np.float16).view(np.uint8)
    writer = gguf.GGUFWriter(tmp_path / "x.gguf", "llama")
    writer.add_tensor("a", raw, raw_dtype=Kind.Q8_0)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    assert open_gguf(tmp_path / "x.gguf").read("a").isnan().all()


def test_a_mapped_tensor_can_be_written_to_without_changing_the_file(values, tmp_path) -> None:
    path = write(tmp_path / "x.gguf", "llama", [("a", values, Kind.F32)])
    before, found = path.read_bytes(), open_gguf(path)
    found.mmap("a").fill_(7)
    assert path.read_bytes() == before
    assert torch.equal(found.read("a"), torch.from_numpy(values))


def test_a_kind_that_is_not_read_is_refused_by_name(tmp_path) -> None:
    writer = gguf.GGUFWriter(tmp_path / "x.gguf", "llama")
    writer.add_tensor("a", np.zeros((3, 84), np.uint8), raw_dtype=Kind.Q2_K)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    found = open_gguf(tmp_path / "x.gguf")
    assert (found.type_name("a"), found.shape("a")) == ("Q2_K", (3, 256))
    with pytest.raises(BundleError, match=r"'a' is stored as Q2_K.* F32, F16, .*Q8_0"):
        found.read("a")
    with pytest.raises(BundleError, match="no tensor 'b'; it has 1 others"):
        found.read("b")


def test_values_of_every_type_come_back(tmp_path) -> None:
    def describe(writer) -> None:
        for bits in (8, 16, 32, 64):
            getattr(writer, f"add_uint{bits}")(f"u{bits}", 2**bits - 1)
            getattr(writer, f"add_int{bits}")(f"i{bits}", -(2 ** (bits - 1)))
        writer.add_float32("f32", 0.5)
        writer.add_float64("f64", 0.1)
        writer.add_bool("yes", True)
        writer.add_string("text", "▁ä🙂")
        writer.add_array("texts", ["", "a\nb"])
        writer.add_array("numbers", [1, -2])
        writer.add_array("flags", [True, False])

    found = dict(open_gguf(write(tmp_path / "x.gguf", "llama", describe=describe)).metadata)
    assert found == {
        "general.architecture": "llama",
        **{f"u{bits}": 2**bits - 1 for bits in (8, 16, 32, 64)},
        **{f"i{bits}": -(2 ** (bits - 1)) for bits in (8, 16, 32, 64)},
        "f32": 0.5,
        "f64": 0.1,
        "yes": True,
        "text": "▁ä🙂",
        "texts": ["", "a\nb"],
        "numbers": [1, -2],
        "flags": [True, False],
    }
