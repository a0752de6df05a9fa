"""JSON is read if every reader would understand it alike, and refused in one line else."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qkv.errors import BundleError, DataError
from qkv.files import parse_json, read_json, read_json_list
from qkv.files.strict_json import MAX_DEPTH


def message(path: Path, read: Any = read_json) -> str:
    with pytest.raises(DataError) as caught:
        read(path, DataError)
    says = str(caught.value)
    assert says.isprintable()
    assert says.startswith(str(path))
    assert len(says.replace(str(path), "")) < 400
    return says


REFUSED = {
    "nothing": (b"", "is not JSON"),
    "half of it": (b'{"a": ', "is not JSON"),
    "two of them": (b"{} {}", "is not JSON"),
    "not UTF-8": (b'{"a": "\xff"}', "is not UTF-8 text (byte 7)"),
    "a list": (b"[]", "must hold a JSON object, not list"),
    "a name twice": (b'{"a": 1, "b": 2, "a": 1}', "names 'a' twice"),
    "a name twice inside": (b'{"a": [{"b\\n": 1, "b\\n": 2}]}', r"names 'b\n' twice"),
    "half a character": (b'{"a": "x\\ud800"}', r"holds 'x\ud800', which has half a character"),
    "half a name": (b'{"\\uDfFf": 1}', r"holds '\udfff', which has half"),
    "half of a listed one": (b'{"a": [1, ["b", "\\udc00\\ud83d"]]}', "half a character"),
    "half a name inside": (b'{"a": [{"b": {"\\ud83d": 1}}]}', "half a character"),
    "a number of 5,000 digits": (b'{"a": ' + b"9" * 5000 + b"}", "is not JSON"),
    "deep lists": (b'{"a": ' + b"[" * 500 + b"]" * 500 + b"}", "nested too deeply"),
    "deeper lists": (b"[" * 200_000, "nested too deeply"),
    "deeper objects": (b'{"a": ' * 200_000, "nested too deeply"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_used_is_refused(case: str, tmp_path: Path) -> None:
    content, says = REFUSED[case]
    (tmp_path / "a.json").write_bytes(content)
    assert says in message(tmp_path / "a.json")


def test_a_list_is_read_where_one_is_expected(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('[{"a": 1}]')
    assert read_json_list(tmp_path / "a.json") == [{"a": 1}]
    (tmp_path / "a.json").write_text('{"a": 1}')
    assert "must hold a JSON list, not dict" in message(tmp_path / "a.json", read_json_list)


def test_whole_characters_may_be_escaped_and_backslashes_are_no_escapes() -> None:
    for text in (r'["\ud83d\ude00"]', r'["\\ud800"]', r'{"\\\\udfff": "\\\ud83d\ude00"}'):
        assert parse_json(text, "it") == json.loads(text)


def test_depth_is_counted_alike_wherever_the_reader_stands() -> None:
    for inside in ("", "1"):
        text = "[" * MAX_DEPTH + inside + "]" * MAX_DEPTH
        assert parse_json(text, "it") == json.loads(text)
    with pytest.raises(BundleError, match="it is nested too deeply"):
        parse_json("[" * (MAX_DEPTH + 2) + "]" * (MAX_DEPTH + 2), "it")


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@given(VALUES, st.booleans())
def test_whatever_json_can_say_comes_back(value: Any, escaped: bool) -> None:
    assert parse_json(json.dumps(value, ensure_ascii=escaped), "it") == value
