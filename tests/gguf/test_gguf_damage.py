"""A file may lie in every way; it is refused in one sentence, without a crash or much memory."""

import contextlib
import struct
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.gguf.raw_gguf import (
    BOOL,
    F32,
    LIST,
    TEXT,
    U8,
    U32,
    Info,
    listed,
    one,
    pair,
    raw_gguf,
    text,
    tiny_llama,
)

from qkv.errors import BundleError
from qkv.gguf import open_gguf
from qkv.gguf.header import MAX_HEADER_VALUES

HUGE = 2**63
KEY = "k"
VALUE = text(KEY) + struct.pack("<I", TEXT)


def texts_of_nothing(count: int) -> bytes:
    return text(KEY) + struct.pack("<IIQ", LIST, TEXT, count) + bytes(8 * count)


DAMAGED = {
    "empty": (b"", "not a GGUF file"),
    "two bytes": (b"GG", "not a GGUF file"),
    "another format": (b"PK\x03\x04" + bytes(90), "begins with b'PK"),
    "only the magic": (b"GGUF", "truncated"),
    "version 1": (raw_gguf(version=1), "version 1, supported are 2 and 3"),
    "version 4": (raw_gguf(version=4), "version 4, supported are 2 and 3"),
    "big-endian": (b"GGUF\0\0\0\3" + bytes(90), "big-endian"),
    "too many tensors": (raw_gguf(tensors=HUGE), f"{HUGE} tensors"),
    "too many values": (raw_gguf(values=HUGE), f"{HUGE} values"),
    "one tensor too many": (raw_gguf(infos=[Info("a", [8], 0)], tensors=2), "tensors"),
    "a long key": (raw_gguf([struct.pack("<Q", HUGE) + bytes(16)]), "inside a key"),
    "a long text": (raw_gguf([VALUE + struct.pack("<Q", 99)]), "needs 99 bytes"),
    "a key that is not UTF-8": (raw_gguf([pair(KEY, U8, 1).replace(b"k", b"\xff")]), "UTF-8"),
    "a long list": (raw_gguf([listed(KEY, U8, [], HUGE)]), f"{HUGE} numbers"),
    "a long list of texts": (raw_gguf([listed(KEY, TEXT, [], HUGE)]), f"{HUGE} strings"),
    "more texts than needed": (raw_gguf([texts_of_nothing(MAX_HEADER_VALUES)]), "more than"),
    "lists in a list": (raw_gguf([listed(KEY, LIST, [], 1) + bytes(12)]), "list of lists"),
    "an undefined type": (raw_gguf([text(KEY) + struct.pack("<I", 13)]), "type 13"),
    "a list of an undefined type": (raw_gguf([listed(KEY, 77, [], 0)]), "type 77"),
    "neither true nor false": (raw_gguf([pair(KEY, BOOL, 2)]), "neither true nor false"),
    "a key twice": (raw_gguf([pair(KEY, U8, 1)] * 2), "key 'k' twice"),
    "a tensor twice": (raw_gguf(infos=[Info("a", [8], 0)] * 2, data=bytes(64)), "'a' twice"),
    "no axes": (raw_gguf(infos=[Info("a", [], 0)], data=bytes(64)), "0 axes"),
    "five axes": (raw_gguf(infos=[Info("a", [1] * 5, 0)], data=bytes(64)), "5 axes"),
    "a billion axes": (
        raw_gguf(infos=[Info("a", [8], 0)]).replace(b"a\1\0\0\0", b"a\0\0\0\x7f"),
        "axes",
    ),
    "an empty axis": (raw_gguf(infos=[Info("a", [8, 0], 0)], data=bytes(64)), "(0, 8)"),
    "absurd axes": (raw_gguf(infos=[Info("a", [HUGE] * 4, 0)], data=bytes(64)), "would end"),
    "half a block": (raw_gguf(infos=[Info("a", [40, 2], 0, kind=8)]), "multiple of 32"),
    "an unknown ggml type": (raw_gguf(infos=[Info("a", [8], 0, kind=4)]), "ggml type 4"),
    "beyond the end": (raw_gguf(infos=[Info("a", [8], 64)], data=bytes(64)), "would end"),
    "far beyond the end": (raw_gguf(infos=[Info("a", [8], HUGE)], data=bytes(64)), "would end"),
    "unaligned": (raw_gguf(infos=[Info("a", [8], 8)], data=bytes(64)), "alignment 32"),
    "overlapping tensors": (
        raw_gguf(infos=[Info("a", [9], 0), Info("b", [8], 32)], data=bytes(64)),
        "'a' and 'b' overlap",
    ),
    "an alignment of 0": (raw_gguf([pair("general.alignment", U32, 0)]), "power of two"),
    "an alignment of 24": (raw_gguf([pair("general.alignment", U32, 24)]), "power of two"),
    "a text as alignment": (raw_gguf([pair("general.alignment", TEXT, "32")]), "power of two"),
    "one part of many": (raw_gguf([pair("split.count", U32, 3)]), "one of 3 parts"),
    "a name with a line break": (raw_gguf(infos=[Info("a\nb", [], 0)]), r"a\nb"),
}


@pytest.mark.parametrize("case", DAMAGED)
def test_a_damaged_file_is_a_one_line_error(case: str, tmp_path: Path) -> None:
    data, message = DAMAGED[case]
    path = tmp_path / "bad.gguf"
    path.write_bytes(data)
    tracemalloc.start()
    with pytest.raises(BundleError) as caught:
        open_gguf(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert message in str(caught.value)
    assert str(caught.value).startswith(str(path))
    assert "\n" not in str(caught.value)
    assert peak < 2**20


@pytest.mark.parametrize("make", ["nothing", "folder"])
def test_a_path_that_is_not_a_file_is_an_error(make: str, tmp_path: Path) -> None:
    path = tmp_path if make == "folder" else tmp_path / "absent.gguf"
    with pytest.raises(BundleError, match="is not a file"):
        open_gguf(path)


def test_every_beginning_of_a_file_is_refused(tmp_path: Path) -> None:
    whole, path = tiny_llama(), tmp_path / "cut.gguf"
    for length in range(0, len(whole) - 32, 7):
        path.write_bytes(whole[:length])
        with pytest.raises(BundleError):
            open_gguf(path)


def test_a_file_changed_after_it_was_opened_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(tiny_llama())
    gguf = open_gguf(path)
    path.write_bytes(tiny_llama()[:-40])
    with pytest.raises(BundleError, match="was changed after it was opened"):
        gguf.read("output_norm.weight")
    path.unlink()
    with pytest.raises(BundleError, match="cannot read"):
        gguf.read("output_norm.weight")


def use(path: Path) -> None:
    """All that can be asked of a file, each by itself: one refusal does not hide the next."""
    gguf = open_gguf(path)
    for ask in (gguf.config, gguf.weights, gguf.tokenizer, gguf.special_tokens):
        try:
            found = ask()
        except BundleError:
            continue
        if ask == gguf.tokenizer:
            found.encode("a ab\tä")
        if ask == gguf.weights:
            for name in found:
                assert found.read(name).shape == found.mmap(name).shape == found.shape(name)


@pytest.fixture(scope="module")
def whole() -> bytes:
    return tiny_llama()


def test_the_file_that_is_damaged_below_is_whole(whole: bytes, tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(whole)
    gguf = open_gguf(path)
    assert gguf.config()["hidden_size"] == 8
    assert len(gguf.weights()) == 11
    assert gguf.tokenizer().encode("a ab").tokens == ["<s>", "▁a", "▁a", "b"]
    assert gguf.special_tokens()["chat_template"] == "{{ messages }}"
    use(path)


@settings(max_examples=200, deadline=None)
@given(data=st.data())
def test_any_bytes_may_be_wrong(
    data: st.DataObject, whole: bytes, tmp_path_factory: pytest.TempPathFactory
) -> None:
    raw = bytearray(whole)
    tensors = whole.index(b"token_embd")
    for _ in range(data.draw(st.integers(1, 4))):
        part = data.draw(st.sampled_from([tensors, len(whole) - 1]))
        at = data.draw(st.integers(0, part))
        new = data.draw(
            st.one_of(
                st.integers(0, 255).map(lambda byte: bytes([byte])),
                st.sampled_from([one(U32, 2**32 - 1), struct.pack("<Q", HUGE), one(F32, -1e38)]),
            )
        )
        raw[at : at + len(new)] = new
    if data.draw(st.booleans()):
        at, count = data.draw(st.integers(0, len(raw))), data.draw(st.integers(1, 40))
        del raw[at : at + count]
    path = tmp_path_factory.getbasetemp() / "fuzzed.gguf"
    path.write_bytes(raw)
    with contextlib.suppress(BundleError):
        use(path)
