"""A header that is wrong in one way is refused with the reason."""

import json
import re
from pathlib import Path

import pytest
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from tests.weights.written import content, entry, message

from qkv.weights import open_weights

GOOD = entry("F32", [2, 3], 0, 24)
DATA = bytes(24)
DEEP = 2000


def one(**changed: object) -> bytes:
    """A file with one tensor, described as GOOD except for what is given."""
    return content({"t": GOOD | changed}, DATA)


def text(header: str) -> bytes:
    return content(header, DATA)


BEGINNING = {
    "an empty file": (b"", "has 0 bytes, and a safetensors file at least 8"),
    "seven bytes": (b"\2\0\0\0\0\0\0", "has 7 bytes"),
    "no header": (bytes(8) + b"{}", "announces a header of 0 bytes"),
    "a header too long": ((100_000_001).to_bytes(8, "little") + b"{}", "of 100000001 bytes"),
    "a header of 2**63 bytes": ((2**63).to_bytes(8, "little") + b"{}", f"of {2**63} bytes"),
    "a header beyond the end": ((3).to_bytes(8, "little") + b"{}", "truncated"),
    "a Git LFS pointer": (b"version https://git-lfs.github.com/spec/v1\n", "run git lfs pull"),
}
JSON = {
    "not UTF-8": (content(b'{"\xff": 1}'), "byte 2 is not UTF-8"),
    "not JSON": (content("{not JSON}"), "at character 1 it has 'not JSON}' instead of a name"),
    "cut off": (content('{"t": '), "at character 6 it has its end instead of a value"),
    "a list": (content([1, 2]), "begins with '[1, 2]' instead of a {"),
    "a number": (content("7"), "begins with '7'"),
    "a space in front": (content(" {}"), "begins with ' {}'"),
    "two objects": (content("{}{}"), "at character 2 it has '{}' instead of its end"),
    "a comma too many": (content('{"t":' + json.dumps(GOOD) + ",}", DATA), "instead of a name"),
    "deep lists": (content('{"t":' + "[" * DEEP + "]" * DEEP + "}"), "nested too deeply"),
    "deeper lists": (content("[" * 10**6), "begins with '[[[["),
    "deep objects": (content('{"t":' * 10**5 + "1" + "}" * 10**5), "is not the JSON it should be"),
    "a long list": (content('{"t":[' + "[]," * 10**6 + "[]]}"), "a value of at most 4096"),
    "a long name": (content('{"' + "n" * 10**6 + '": 1}'), "is described by 1"),
    "an endless name": (content('{"' + "n" * 10**6), "instead of a name in quotes"),
    "half a character": (content('{"\\ud800": 1}'), r"holds '\ud800', which has half a character"),
    "no number": (text('{"t":{"dtype":"F32","shape":[NaN],"data_offsets":[0,24]}}'), "instead of"),
    "a name twice": (
        text(f'{{"t":{json.dumps(GOOD)},"t":{json.dumps(GOOD)}}}'),
        "names 't' twice, where each name may come once",
    ),
    "a field twice": (
        text('{"t":{"dtype":"F32","dtype":"F32","shape":[2,3],"data_offsets":[0,24]}}'),
        "names 'dtype' twice near character 5",
    ),
    "metadata twice": (content('{"__metadata__":{},"__metadata__":{}}'), "'__metadata__' twice"),
    "a note twice": (content('{"__metadata__":{"a":"1","a":"1"}}'), "names 'a' twice"),
}
METADATA = {
    "a list": (content({"__metadata__": ["a"]}), "__metadata__, a map of strings to strings"),
    "a number": (content({"__metadata__": {"a": 1}}), "a string, as all values in __metadata__"),
    "nothing": (content({"__metadata__": None}), "__metadata__, a map of strings to strings"),
}
ENTRY = {
    "an empty name": (content({"": GOOD}, DATA), "a tensor with an empty name"),
    "a list": (content({"t": [1]}, DATA), "'t' is described by [1], and needs exactly dtype"),
    "nothing": (content({"t": None}, DATA), "is described by None"),
    **{
        f"no {field}": (
            content({"t": {k: v for k, v in GOOD.items() if k != field}}, DATA),
            "needs exactly dtype, shape and data_offsets",
        )
        for field in GOOD
    },
    "a field too many": (one(strides=[3, 1]), "needs exactly dtype, shape and data_offsets"),
    "an unknown dtype": (one(dtype="F31"), "the unknown dtype 'F31'; convert it to one of F64, "),
    "a dtype that is a list": (one(dtype=["F32"]), "the unknown dtype ['F32']"),
    "a shape that is a number": (one(shape=6), "shape 6, not a list"),
    "a negative size": (one(shape=[-2, -3]), "has -2 in its shape"),
    "a fraction": (one(shape=[2.0, 3]), "has 2.0 in its shape"),
    "a truth": (one(shape=[6, True]), "has True in its shape"),
    "a word": (one(shape=["2", 3]), "has '2' in its shape"),
    "a list in a list": (one(shape=[[2, 3]]), "has [2, 3] in its shape"),
    "a huge size": (one(shape=[2**64]), f"has {2**64} in its shape, not an integer from 0"),
    "an absurd size": (one(shape=[10**2000]), "in its shape"),
    "a product beyond 64 bits": (one(shape=[2**62, 2**62]), "more than any machine can hold"),
    "a product that wraps to 24 bytes": (one(shape=[2**61 + 3, 2]), "more than any machine"),
    "an empty tensor of endless rows": (
        content({"t": entry("U8", [2**62, 2**62, 0], 0, 0)}),
        "more than any machine can hold",
    ),
    "a span too long": (one(shape=[5]), "has 24 bytes, but F32 of shape [5] takes 20"),
    "a span too short": (one(shape=[7]), "has 24 bytes, but F32 of shape [7] takes 28"),
    "offsets that are text": (one(data_offsets="0,24"), "data_offsets '0,24', not a list"),
    "one offset": (one(data_offsets=[24]), "data_offsets [24], and needs a begin and an end"),
    "three offsets": (one(data_offsets=[0, 24, 24]), "needs a begin and an end"),
    "offsets reversed": (one(data_offsets=[24, 0]), "has data_offsets [24, 0], and needs"),
    "a negative offset": (one(data_offsets=[-24, 0]), "has -24 in its data_offsets"),
    "a truth as offset": (one(data_offsets=[False, 24]), "has False in its data_offsets"),
    "a fraction as offset": (one(data_offsets=[0, 24.0]), "has 24.0 in its data_offsets"),
}
COVER = {
    "beyond the end": (
        content({"t": entry("F32", [8], 0, 32)}, DATA),
        "it is truncated, so get it",
    ),
    "far beyond the end": (
        content({"t": entry("F32", [6], 2**62, 2**62 + 24)}, DATA),
        "but the file has",
    ),
    "a hole in front": (
        content({"t": entry("F32", [5], 4, 24)}, DATA),
        "leaves a hole after the header",
    ),
    "a hole between": (
        content({"s": entry("F32", [1], 0, 4), "t": entry("F32", [4], 8, 24)}, DATA),
        "leaves a hole after 's'",
    ),
    "an overlap": (
        content({"s": entry("F32", [4], 0, 16), "t": entry("F32", [3], 12, 24)}, DATA),
        "overlaps 's'",
    ),
    "the same bytes twice": (content({"s": GOOD, "t": GOOD}, DATA), "overlaps 's'"),
    "an empty tensor amid another": (
        content({"s": GOOD, "t": entry("F32", [0], 12, 12)}, DATA),
        "'t' begins at byte",
    ),
    "bytes left over": (content({"t": GOOD}, bytes(27)), "3 more than its header describes"),
    "bytes and no tensor": (content({}, b"x"), "1 more than its header describes"),
}
HOSTILE = [
    pytest.param(raw, says, id=f"{kind}: {name}")
    for kind, cases in {
        "beginning": BEGINNING,
        "json": JSON,
        "metadata": METADATA,
        "entry": ENTRY,
        "cover": COVER,
    }.items()
    for name, (raw, says) in cases.items()
]


@pytest.mark.parametrize(("raw", "says"), HOSTILE)
def test_a_damaged_header_is_refused_with_the_reason(raw: bytes, says: str, tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(raw)
    assert says in message(path)


def test_what_all_those_files_were_made_from_can_be_read(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(one())
    assert torch.equal(open_weights(path).read("t"), torch.zeros(2, 3))


@pytest.mark.parametrize(("raw", "says"), HOSTILE[:7])
def test_safetensors_refuses_a_bad_beginning_too(raw: bytes, says: str, tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(raw)
    with pytest.raises(SafetensorError):
        load_file(path)


def test_spaces_and_newlines_between_the_marks_are_fine(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    header = json.dumps({"__metadata__": {"a": "b"}, "t": GOOD, "u": entry("U8", [0], 24, 24)})
    path.write_bytes(text(re.sub(r"([{}\[\],:])", r"\1 \n\t\r", header) + "   "))
    assert list(open_weights(path)) == ["t", "u"]


def test_a_hundred_megabytes_of_empty_space_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    with path.open("wb") as file:
        file.write((100_000_000).to_bytes(8, "little"))
        file.truncate(100_000_008)
    assert "begins with '\\x00" in message(path)
