"""Whatever a user gets wrong is told in one line that says what to do."""

import json
import os
import random
import re
from pathlib import Path

import pytest

from qkv.errors import DataError, UsageError
from qkv.files import MAX_VOCAB_BYTES
from qkv.text import TOKENIZER_KINDS, Tokenizer

TEXTS = ["the cat sat on the mat", "the dog did not"]


def one_line(caught: pytest.ExceptionInfo[Exception], *parts: str) -> None:
    message = str(caught.value)
    assert "\n" not in message
    for part in parts:
        assert part in message


def test_an_unknown_kind_suggests_the_near_one() -> None:
    with pytest.raises(UsageError) as caught:
        Tokenizer.train("wordpeice", TEXTS, 300)
    one_line(caught, '"wordpeice"', 'did you mean "wordpiece"?')


@pytest.mark.parametrize(
    ("kind", "least"),
    [("bpe", 261), ("bytes", 261), ("wordpiece", 7), ("unigram", 6), ("characters", 6)],
)
def test_too_small_a_vocabulary_names_both_numbers(kind: str, least: int) -> None:
    for vocabulary in (least - 1, 0, -3):
        with pytest.raises(UsageError) as caught:
            Tokenizer.train(kind, TEXTS, vocabulary)
        one_line(caught, kind, f"vocab_size={vocabulary} ", str(least))
    assert Tokenizer.train(kind, TEXTS, least).vocab_size <= least


@pytest.mark.parametrize("kind", TOKENIZER_KINDS)
@pytest.mark.parametrize("texts", [[], [""], ["", "", ""]])
def test_nothing_to_learn_from_is_an_error(kind: str, texts: list[str]) -> None:
    with pytest.raises(DataError, match="no text to learn") as caught:
        Tokenizer.train(kind, texts, 300)
    one_line(caught)


def test_texts_of_space_hold_no_word_for_wordpiece() -> None:
    with pytest.raises(DataError, match="no word") as caught:
        Tokenizer.train("wordpiece", [" \n", "\t"], 300)
    one_line(caught)


@pytest.mark.parametrize("kind", TOKENIZER_KINDS)
@pytest.mark.parametrize(("half", "name"), [("\ud800", "U+D800"), ("\udfff", "U+DFFF")])
def test_half_a_character_is_named_with_its_position(kind: str, half: str, name: str) -> None:
    tokenizer, text = Tokenizer.train(kind, TEXTS, 300), f"abcdé{half}f"
    for use in (
        lambda: tokenizer.encode(text),
        lambda: tokenizer.encode_many([*TEXTS, text]),
        lambda: tokenizer.offsets(text),
        lambda: Tokenizer.train(kind, [*TEXTS, text], 300),
    ):
        with pytest.raises(DataError) as caught:
            use()
        one_line(caught, f"half a character ({name}) at position 5;")


def test_what_the_texts_raise_while_learning_is_not_hidden() -> None:
    def broken() -> object:
        yield "the cat"
        raise DataError("reviews.csv line 318: label is empty")

    for kind in TOKENIZER_KINDS:
        with pytest.raises(DataError, match="line 318"):
            Tokenizer.train(kind, broken(), 300)


def test_text_that_is_no_string_is_a_bug_and_keeps_its_type() -> None:
    with pytest.raises((TypeError, AttributeError)):
        Tokenizer.train("bpe", TEXTS, 300).encode(7)


def test_a_missing_file_and_a_missing_folder_are_named(tmp_path: Path) -> None:
    with pytest.raises(DataError) as caught:
        Tokenizer.load(tmp_path / "nothing.json")
    one_line(caught, "nothing.json", "No such file")
    with pytest.raises(DataError) as caught:
        Tokenizer.load(tmp_path)
    one_line(caught, str(tmp_path))
    with pytest.raises(DataError) as caught:
        Tokenizer.train("bytes", TEXTS, 300).save(tmp_path / "no" / "tokenizer.json")
    one_line(caught, "cannot write", "tokenizer.json")


def test_a_tokenizer_file_is_read_only_if_it_is_an_ordinary_one_of_some_size(
    tmp_path: Path,
) -> None:
    os.mkfifo(tmp_path / "pipe.json")
    with pytest.raises(DataError) as caught:
        Tokenizer.load(tmp_path / "pipe.json")
    one_line(caught, "pipe.json is a device or a pipe")
    with (tmp_path / "huge.json").open("wb") as file:
        file.truncate(MAX_VOCAB_BYTES + 1)  # a hole: it takes no room
    with pytest.raises(DataError) as caught:
        Tokenizer.load(tmp_path / "huge.json")
    one_line(caught, "huge.json", "at most 209,715,200 are read")


def test_a_tokenizer_file_that_the_user_names_may_be_a_link(tmp_path: Path) -> None:
    Tokenizer.train("bytes", TEXTS, 300).save(tmp_path / "tokenizer.json")
    (tmp_path / "links").mkdir()
    (tmp_path / "links" / "mine.json").symlink_to(tmp_path / "tokenizer.json")
    assert Tokenizer.load(tmp_path / "links" / "mine.json").vocab_size == 261


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{}",
        b"[]",
        b"null",
        b"\xff\xfe\x00",
        b"not json",
        b'{"version": "1.0", "model": {"type": "New"}}',
        b'{"model": {"type": "Unigram", "vocab": [["a", 0.0]], "unk_id": 7}}',
        b'{"version": "1.0", "model": {"type": "WordLevel", "vocab": {"a": 0}, "unk_token": "a"}}',
    ],
)
def test_a_file_that_is_no_tokenizer_is_refused_by_name(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_bytes(content)
    with pytest.raises(DataError) as caught:
        Tokenizer.load(path)
    one_line(caught, str(path))


@pytest.mark.parametrize("kind", TOKENIZER_KINDS)
def test_a_damaged_file_is_refused_or_still_usable_but_never_a_crash(
    kind: str, tmp_path: Path
) -> None:
    path, rng = tmp_path / "tokenizer.json", random.Random(11)
    Tokenizer.train(kind, TEXTS, 300).save(path)
    whole = path.read_bytes()
    damaged = [whole[: rng.randrange(len(whole) - 2)] for _ in range(20)]
    for _ in range(100):
        flipped = bytearray(whole)
        flipped[rng.randrange(len(whole))] ^= 1 << rng.randrange(8)
        damaged.append(bytes(flipped))
    refused = []
    for content in damaged:
        path.write_bytes(content)
        try:
            Tokenizer.load(path).encode("the cat")
            refused.append("")
        except DataError as error:
            refused.append(str(error))
    assert all(refused[:20]), "a file cut short was taken for whole"
    name = re.escape(str(path))
    expected = re.compile(rf"|cannot use {name} as a tokenizer: [^\n]+|{name} is not UTF-8 [^\n]+")
    assert [message for message in refused if not expected.fullmatch(message)] == []


def test_a_tokenizer_from_elsewhere_says_which_token_it_lacks(tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    vocabulary = {"[UNK]": 0, "a": 1}
    model = {
        "type": "WordPiece",
        "vocab": vocabulary,
        "unk_token": "[UNK]",
        "continuing_subword_prefix": "##",
        "max_input_chars_per_word": 100,
    }
    path.write_text(json.dumps({"version": "1.0", "model": model}), encoding="utf-8")
    tokenizer = Tokenizer.load(path)
    assert (tokenizer.kind, tokenizer.encode("a")) == ("wordpiece", [1])
    with pytest.raises(DataError, match="no <pad>"):
        _ = tokenizer.pad_id
