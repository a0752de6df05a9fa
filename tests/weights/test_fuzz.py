"""Whatever the bytes are: a BundleError, or the values that safetensors finds in them too."""

import tempfile
from pathlib import Path

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load, save
from tests.weights.written import content, same, shard
from torch import Tensor

from qkv.errors import BundleError
from qkv.weights import open_weights

INDEX = "model.safetensors.index.json"
VALID = save(
    {
        "w": torch.arange(6.0).view(2, 3),
        "half": torch.ones(5, dtype=torch.bfloat16),
        "flag": torch.tensor([True, False, True]),
        "one": torch.tensor(7),
        "none": torch.zeros(0, 3),
    },
    metadata={"format": "pt"},
)
HEADER = 8 + int.from_bytes(VALID[:8], "little")
MARKS = [b"{", b"}", b"[", b"]", b",", b":", b'"', b"0", b"-", b"9" * 30, b"\\u", b"e9", b" ", b""]


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """The valid file with a few stretches replaced, mostly in its header, and perhaps cut off."""
    raw = bytearray(VALID)
    for _ in range(draw(st.integers(1, 3))):
        last = draw(st.sampled_from([HEADER - 1, HEADER - 1, len(VALID) - 1]))
        at, span = draw(st.integers(0, last)), draw(st.integers(0, 3))
        raw[at : at + span] = draw(st.sampled_from(MARKS) | st.binary(max_size=4))
    if draw(st.booleans()):  # a header that is as long as announced gets further
        raw[:8] = max(0, len(raw) - (len(VALID) - HEADER) - 8).to_bytes(8, "little")
    return bytes(raw[: draw(st.integers(0, len(raw)))]) if draw(st.booleans()) else bytes(raw)


headers = st.text(max_size=80).map(lambda text: content("{" + text + "}"))


def outcome(raw: bytes) -> dict[str, Tensor] | None:
    """All tensors of a file with those bytes, read and mapped alike; None if it is refused."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "model.safetensors")
        path.write_bytes(raw)
        try:
            weights = open_weights(path)
            read = {name: weights.read(name) for name in weights}
            assert all(same(weights.mmap(name), t) for name, t in read.items())
        except BundleError as error:
            expect_one_line(error)
            return None
        return read


def expect_one_line(error: BundleError) -> None:
    assert str(error).isprintable()


def check(raw: bytes) -> None:
    found = outcome(raw)
    if found is not None:
        expected = load(raw)
        assert found.keys() == expected.keys()
        assert all(same(t, expected[name]) for name, t in found.items())


@settings(max_examples=300, deadline=None)
@given(raw=st.binary(max_size=200) | headers)
def test_random_bytes_are_refused_or_read_as_safetensors_reads_them(raw: bytes) -> None:
    check(raw)


@settings(max_examples=300, deadline=None)
@given(raw=damaged())
def test_a_damaged_file_is_refused_or_read_as_safetensors_reads_it(raw: bytes) -> None:
    check(raw)


def test_the_file_they_are_made_from_is_read() -> None:
    assert outcome(VALID) is not None
    check(VALID)


@settings(max_examples=200, deadline=None)
@given(data=st.data())
def test_a_damaged_index_is_refused_or_means_the_same(data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as folder:
        tensors = {"x.safetensors": {"a": torch.ones(2)}, "y.safetensors": {"b": torch.zeros(3)}}
        place = shard(Path(folder), tensors)
        raw = bytearray((place / INDEX).read_bytes())
        at, span = data.draw(st.integers(0, len(raw))), data.draw(st.integers(0, 3))
        raw[at : at + span] = data.draw(st.sampled_from(MARKS) | st.binary(max_size=9))
        (place / INDEX).write_bytes(raw)
        try:
            weights = open_weights(place)
        except BundleError as error:
            expect_one_line(error)
        else:
            assert set(weights) == {"a", "b"}
            assert torch.equal(weights.read("b"), torch.zeros(3))
