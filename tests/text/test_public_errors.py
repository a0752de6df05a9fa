"""A directory that cannot be used is told in one line, and does nothing else."""

import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.text.published import BRACKETS, PUBLISHED, minilm, write, write_bytes, write_words

from qkv.errors import DataError
from qkv.files import MAX_VOCAB_BYTES
from qkv.text import has_tokenizer, read_tokenizer
from qkv.text.pretrained import FILES


def refused(directory: Path, *parts: str) -> str:
    with pytest.raises(DataError) as caught:
        read_tokenizer(directory)
    message = str(caught.value)
    assert "\n" not in message
    assert len(message) < 600
    for part in parts:
        assert part in message
    return message


def bert(place: Path) -> Path:
    return write_words(place, BRACKETS, tokenizer_class="BertTokenizer")


def gpt2(place: Path) -> Path:
    return write_bytes(place, ["<|endoftext|>"], tokenizer_class="GPT2Tokenizer")


def changed(path: Path, change: Callable[[Any], object]) -> None:
    state = json.loads(path.read_text(encoding="utf-8"))
    change(state)
    path.write_text(json.dumps(state), encoding="utf-8")


def bert_json(place: Path) -> Path:
    backend = read_tokenizer(bert(place / "files"))
    backend.save(place / "tokenizer.json")
    (place / "special_tokens.json").unlink()
    return place


def test_a_directory_without_a_tokenizer_says_what_was_looked_for(tmp_path: Path) -> None:
    refused(tmp_path, str(tmp_path), "tokenizer.json", "vocab.txt", "tokenizer.model")
    refused(tmp_path / "nothing", "nothing")


@pytest.mark.parametrize(
    "name",
    [
        "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json",
        "config.json", "generation_config.json",
    ],
)  # fmt: skip
@pytest.mark.parametrize("content", [b"", b"[]", b"null", b"{", b"\xff\xfe", b"[" * 200_000])
def test_a_file_that_is_no_json_object_is_named(tmp_path: Path, name: str, content: bytes) -> None:
    (bert(tmp_path) / name).write_bytes(content)
    refused(tmp_path, str(tmp_path / name))


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"do_lower_case": "yes"}, "do_lower_case must be true or false"),
        ({"cls_token": 3}, "a token must be a string"),
        ({"cls_token": {"content": 3}}, "a token must be a string"),
        ({"cls_token": {"content": "[CLS]", "lstrip": 3}}, "flags"),
        ({"cls_token": "[NOT]"}, "[NOT]"),
        ({"cls_token": None}, "cls_token"),
        ({"unk_token": None}, "unk_token"),
        ({"added_tokens_decoder": []}, "added_tokens_decoder"),
        ({"added_tokens_decoder": {"x": "a"}}, "'x' is not the id"),
        ({"added_tokens_decoder": {"5000": {"content": "<new>"}}}, "<new>"),
        ({"added_tokens_decoder": {"1": {"content": "[CLS]"}}}, "[CLS]"),
        ({"extra_special_tokens": 7}, "extra_special_tokens"),
        ({"chat_template": 7}, "chat_template"),
        ({"tokenizer_class": "CLIPTokenizer"}, "CLIPTokenizer"),
        ({"tokenizer_class": "T5Tokenizer"}, "T5Tokenizer"),
        ({"tokenizer_class": "OwnTokenizer", "auto_map": {"AutoTokenizer": ["a.B", None]}}, "code"),
    ],
)
def test_a_setting_that_cannot_be_is_told(
    tmp_path: Path, options: dict[str, object], told: str
) -> None:
    refused(write(bert(tmp_path), tokenizer_config_json=options), told, str(tmp_path))


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ({"cls_token": 3}, "a token must be a string"),
        ({"additional_special_tokens": [3]}, "a token must be a string"),
        ({"additional_special_tokens": 3}, "extra_special_tokens must be a list"),
        ({"extra_special_tokens": {"image_token": 3}}, "a token must be a string"),
    ],
)
def test_a_mistake_in_the_map_of_special_tokens_names_that_file(
    tmp_path: Path, said: dict[str, object], told: str
) -> None:
    write(bert(tmp_path), special_tokens_map_json=said)
    refused(tmp_path, f"{tmp_path / 'special_tokens_map.json'}: {told}")


@pytest.mark.parametrize("content", ['{"%s": "a"}', '{"%s": {"content": "a"}}'])
def test_an_id_of_many_digits_is_told(tmp_path: Path, content: str) -> None:
    listed = '{"added_tokens_decoder": ' + content % ("9" * 5000) + "}"
    refused(write(bert(tmp_path), tokenizer_config_json=listed), "is not the id of a token")
    added = '{"<new>": "' + "9" * 5000 + '"}'
    write(tmp_path, tokenizer_config_json={}, added_tokens_json=added)
    refused(tmp_path, "added_tokens.json", "is not the id of a token")


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("tokenizer_config_json", r'{"cls_token": "[CLS\ud800"}'),
        ("tokenizer_config_json", r'{"cls_token": {"content": "\udfff"}}'),
        ("tokenizer_config_json", r'{"added_tokens_decoder": {"5": {"content": "\ud800"}}}'),
        ("tokenizer_config_json", r'{"chat_template": "\ud800"}'),
        ("special_tokens_map_json", r'{"\ud800_token": "a"}'),
        ("added_tokens_json", r'{"\ud800": 260}'),
    ],
)
def test_half_a_character_is_told_with_its_file(tmp_path: Path, name: str, content: str) -> None:
    refused(write(bert(tmp_path), **{name: content}), "half a character", name.replace("_json", ""))


def test_hostile_names_are_told_in_one_line(tmp_path: Path) -> None:
    for options in (
        {"tokenizer_class": "A\nB" * 300},
        {"cls_token": "[\n]" * 300},
        {"added_tokens_decoder": {"7000": {"content": "[\x1b]" * 300}}},
    ):
        message = refused(write(bert(tmp_path), tokenizer_config_json=options))
        assert message.isprintable()


def test_named_templates_of_any_shape_are_passed_over(tmp_path: Path) -> None:
    named = [3, {"name": ["default"], "template": "x"}, {"name": "default", "template": "y"}]
    place = write(bert(tmp_path), tokenizer_config_json={"chat_template": named})
    assert read_tokenizer(place).special_tokens.chat_template == "y"


def piece(text: str, sort: int = 1) -> bytes:
    """A piece in a SentencePiece model."""

    def field(number: int, content: bytes) -> bytes:
        length = bytes(
            [len(content) & 127 | 128, len(content) >> 7 & 127 | 128, len(content) >> 14]
        )
        return bytes([number << 3 | 2]) + length + content

    return field(1, field(1, text.encode()) + bytes([3 << 3, sort]))


def test_a_piece_of_a_whole_book_is_refused_at_once(tmp_path: Path) -> None:
    bpe = bytes([2 << 3 | 2, 2, 3 << 3, 2])
    pieces = [piece("<unk>", 2), piece("a"), piece("aa")]
    path = tmp_path / "tokenizer.model"
    path.write_bytes(b"".join([*pieces, bpe]))
    assert read_tokenizer(tmp_path).encode("aaa") == [2, 1]
    path.write_bytes(b"".join([*pieces, piece("a" * 60_000), bpe]))
    start = time.perf_counter()
    refused(tmp_path, "has 60000 characters; no vocabulary needs more than 512")
    assert time.perf_counter() - start < 0.3


@pytest.mark.parametrize("name", [first for first, *_ in FILES])
def test_a_tokenizer_that_is_only_a_dead_link_is_noticed(tmp_path: Path, name: str) -> None:
    assert not has_tokenizer(tmp_path)
    (tmp_path / name).symlink_to("nowhere")
    assert has_tokenizer(tmp_path)
    refused(tmp_path, str(tmp_path))


@pytest.mark.parametrize("name", PUBLISHED)
def test_every_published_tokenizer_is_noticed(tmp_path: Path, name: str) -> None:
    assert has_tokenizer(PUBLISHED[name](tmp_path))


@pytest.mark.parametrize(
    ("config", "told"),
    [
        ({"eos_token_id": 99_999}, "eos_token_id is 99999, but the vocabulary has only"),
        ({"eos_token_id": 2**70}, "eos_token_id"),
        ({"eos_token_id": "3"}, "eos_token_id must be an integer"),
        ({"bos_token_id": [0, 1.5]}, "bos_token_id must be an integer"),
        ({"decoder_start_token_id": True}, "decoder_start_token_id"),
    ],
)
def test_an_id_that_is_no_token_is_told(
    tmp_path: Path, config: dict[str, object], told: str
) -> None:
    refused(write(bert(tmp_path), config_json=config), told, "config.json")
    write(tmp_path, config_json={}, generation_config_json=config)
    refused(tmp_path, told, "generation_config.json")


def test_vocabularies_with_mistakes_are_told_with_the_place(tmp_path: Path) -> None:
    path = bert(tmp_path / "twice") / "vocab.txt"
    path.write_text(path.read_text(encoding="utf-8") + "the\n", encoding="utf-8")
    refused(tmp_path / "twice", "vocab.txt line", "'the' is also in line")
    lines = [token for token in BRACKETS if token != "[SEP]"]
    refused(write(tmp_path / "less", vocab_txt="\n".join(lines)), "vocab.txt", "[SEP]")
    (bert(tmp_path / "bytes") / "vocab.txt").write_bytes(b"[PAD]\n\xff\n")
    refused(tmp_path / "bytes", "vocab.txt", "UTF-8")


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda v: v.update(a=900), "no token has the id"),
        (lambda v: v.update(a=v["b"]), "have the same id"),
        (lambda v: v.update(a="7"), "the id of 'a' must be an integer"),
        (lambda v: v.update(a=True), "the id of 'a' must be an integer"),
        (lambda v: v.update(a=-1), "no token has the id"),
        (lambda v: v.update(a=2**40), "no token has the id"),
        (lambda v: v.clear(), "merges.txt line"),
    ],
)
def test_a_vocab_json_with_wrong_ids_is_told(tmp_path: Path, change: Any, told: str) -> None:
    changed(gpt2(tmp_path) / "vocab.json", change)
    refused(tmp_path, told, "vocab.json")


@pytest.mark.parametrize("line", ["a", "a b c", "qqq a", " "])
def test_a_merge_that_cannot_be_is_told_with_its_line(tmp_path: Path, line: str) -> None:
    path = gpt2(tmp_path) / "merges.txt"
    path.write_text(f"#version: 0.2\n{line}\n", encoding="utf-8")
    refused(tmp_path, "merges.txt line 2")


@pytest.mark.parametrize(
    "change",
    [
        lambda s: s["model"]["vocab"].update({"the": 3}),
        lambda s: s["model"]["vocab"].pop("the"),
        lambda s: s["added_tokens"][0].update(id=5000),
        lambda s: s["added_tokens"].append({**s["added_tokens"][0], "content": "x", "id": 9999}),
        lambda s: s["model"].update(type="Strange"),
        lambda s: s["model"].update(type="WordLevel"),
        lambda s: s["model"].update(unk_token="[NOT]"),
        lambda s: s["post_processor"]["special_tokens"]["[CLS]"].update(ids=[12345]),
        lambda s: s["post_processor"].update(single=[{"Sequence": {"id": "A", "type_id": 0}}] * 2),
        lambda s: s["post_processor"].update(single=[]),
        lambda s: s.update(model=None),
        lambda s: s.update(
            normalizer={"type": "Precompiled", "precompiled_charsmap": "AAAA"}  # a panic
        ),
    ],
)
def test_a_tokenizer_json_with_mistakes_is_named(tmp_path: Path, change: Any) -> None:
    changed(bert_json(tmp_path) / "tokenizer.json", change)
    refused(tmp_path, str(tmp_path / "tokenizer.json"))


@pytest.mark.parametrize("name", ["t5", "llama", "plain unigram"])
def test_a_damaged_sentencepiece_model_is_refused_or_usable(tmp_path: Path, name: str) -> None:
    path = next(PUBLISHED[name](tmp_path).glob("*.model"))
    whole = path.read_bytes()
    for content in (b"", b"\xff" * 50, b"IQ== 0\n" * 9, whole[: len(whole) // 2], whole + b"\x0f"):
        path.write_bytes(content)
        refused(tmp_path, str(path))
    rng = random.Random(7)
    told = []
    for _ in range(60):
        flipped = bytearray(whole)
        flipped[rng.randrange(len(whole))] ^= 1 << rng.randrange(8)
        path.write_bytes(flipped)
        try:
            read_tokenizer(tmp_path).encode("the cat")
        except DataError as error:
            told.append(str(error))
    assert [line for line in told if str(path) not in line or "\n" in line] == []


def test_another_models_sentencepiece_is_refused(tmp_path: Path) -> None:
    place = PUBLISHED["llama"](tmp_path)
    (place / "tokenizer.model").rename(place / "spiece.model")
    write(place, tokenizer_config_json={"tokenizer_class": "T5Tokenizer"})
    refused(place, "spiece.model is a BPE model", "Unigram")


def test_links_may_not_lead_out_of_the_directory(tmp_path: Path) -> None:
    secret = write(tmp_path / "elsewhere", vocab_txt="\n".join(BRACKETS)) / "vocab.txt"
    place = tmp_path / "model"
    place.mkdir()
    (place / "vocab.txt").symlink_to(secret)
    refused(place, "leads out of the model's directory")
    (place / "vocab.txt").unlink()
    (place / "vocab.txt").symlink_to(place / "vocab.txt")
    refused(place, "vocab.txt")
    (place / "vocab.txt").unlink()
    (place / "real.txt").write_text("\n".join(BRACKETS), encoding="utf-8")
    (place / "vocab.txt").symlink_to("real.txt")
    assert read_tokenizer(place).vocab_size == 5


def test_the_links_of_the_hugging_face_cache_are_followed(tmp_path: Path) -> None:
    home = tmp_path / "models--a--b"
    place = home / "snapshots" / "0123"
    place.mkdir(parents=True)
    (home / "blobs").mkdir()
    (home / "blobs" / "f00d").write_text("\n".join(BRACKETS), encoding="utf-8")
    (place / "vocab.txt").symlink_to("../../blobs/f00d")
    assert read_tokenizer(place).vocab_size == 5
    (home / "blobs" / "beef").symlink_to("/etc/hostname")
    (place / "tokenizer_config.json").symlink_to("../../blobs/beef")
    refused(place, "leads out of the model's directory")


def test_what_is_no_ordinary_file_is_refused_at_once(tmp_path: Path) -> None:
    (tmp_path / "vocab.txt").mkdir()
    refused(tmp_path, "vocab.txt")
    if hasattr(os, "mkfifo"):
        (tmp_path / "b").mkdir()
        os.mkfifo(tmp_path / "b" / "vocab.txt")
        refused(tmp_path / "b", "is a device or a pipe; give an ordinary file")


def test_a_huge_file_is_refused_unread(tmp_path: Path) -> None:
    with (tmp_path / "vocab.txt").open("wb") as file:
        file.truncate(MAX_VOCAB_BYTES + 1)  # a hole: it takes no room
    refused(tmp_path, "bytes; at most 209,715,200 are read")


def test_nothing_of_a_directory_is_run(tmp_path: Path) -> None:
    place = bert(tmp_path)
    (place / "tokenization_own.py").write_text("raise SystemExit('ran')", encoding="utf-8")
    options = {"tokenizer_class": "OwnTokenizer", "auto_map": {"AutoTokenizer": ["own.Own", None]}}
    refused(write(place, tokenizer_config_json=options), "tokenizer.json", "not run")
    bert_json(place)
    assert read_tokenizer(place).vocab_size > 5


def test_reading_needs_neither_torch_nor_the_peer_nor_sentencepiece(tmp_path: Path) -> None:
    place = PUBLISHED["t5"](tmp_path)
    program = (
        "import sys, pathlib; from qkv.text import read_tokenizer;"
        "read_tokenizer(pathlib.Path(sys.argv[1])).encode('the cat');"
        "heavy = {'torch', 'transformers', 'sentencepiece', 'jinja2'} & {*sys.modules};"
        "sys.exit(' '.join(heavy) or None)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(place)], capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_settings_of_a_real_model_are_not_needed(tmp_path: Path) -> None:
    text = (minilm() / "vocab.txt").read_text(encoding="utf-8")
    bare = read_tokenizer(write(tmp_path, vocab_txt=text))
    assert bare.encode("The cat sat.") == read_tokenizer(minilm()).encode("The cat sat.")
