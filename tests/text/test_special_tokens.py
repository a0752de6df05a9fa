"""Which tokens start, end, pad and mask, read from the files of a published model."""

import copy
import json
import pickle
from pathlib import Path

import pytest
from tests.text.published import ANGLES, BRACKETS, PUBLISHED, write, write_bytes, write_words

from qkv.errors import DataError
from qkv.text import DEFAULT_SPECIAL_TOKENS, SpecialTokens, Tokenizer, read_tokenizer

END = "<|endoftext|>"


def test_a_bert_starts_with_cls_and_ends_with_sep(tmp_path: Path) -> None:
    tokenizer = read_tokenizer(write_words(tmp_path, BRACKETS))
    assert tokenizer.special_tokens == SpecialTokens("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
    ids = [
        tokenizer.pad_id,
        tokenizer.unk_id,
        tokenizer.bos_id,
        tokenizer.eos_id,
        tokenizer.mask_id,
    ]
    assert (ids, tokenizer.prefix_ids, tokenizer.suffix_ids) == ([0, 1, 2, 3, 4], (2,), (3,))
    assert tokenizer.special_ids == {0, 1, 2, 3, 4}
    assert (tokenizer.eos_ids, tokenizer.forced_bos_id) == ((3,), None)


def test_a_gpt2_has_one_token_for_all_and_none_to_pad_or_mask(tmp_path: Path) -> None:
    tokenizer = read_tokenizer(write_bytes(tmp_path, [END], tokenizer_class="GPT2Tokenizer"))
    assert tokenizer.special_tokens == SpecialTokens(None, END, END, END, None)
    for role in ("pad", "mask"):
        with pytest.raises(DataError, match=f"no {role} token"):
            getattr(tokenizer, f"{role}_id")


def test_an_encoder_decoder_starts_where_its_config_says(tmp_path: Path) -> None:
    place = write(
        write_bytes(tmp_path, ANGLES, tokenizer_class="BartTokenizer"),
        config_json={
            "is_encoder_decoder": True,
            "bos_token_id": 0,
            "eos_token_id": 2,
            "pad_token_id": 1,
            "decoder_start_token_id": 2,
            "forced_bos_token_id": 0,
        },
    )
    tokenizer = read_tokenizer(place)
    assert (tokenizer.bos_id, tokenizer.eos_id, tokenizer.pad_id, tokenizer.forced_bos_id) == (
        2,
        2,
        1,
        0,
    )
    assert (tokenizer.prefix_ids, tokenizer.suffix_ids) == ((0,), (2,))


def test_a_t5_starts_with_its_padding(tmp_path: Path) -> None:
    place = write(PUBLISHED["t5"](tmp_path), config_json={"decoder_start_token_id": 0})
    tokenizer = read_tokenizer(place)
    assert (
        tokenizer.special_tokens.bos,
        tokenizer.special_tokens.eos,
        tokenizer.special_tokens.pad,
    ) == (
        "<pad>",
        "</s>",
        "<pad>",
    )


@pytest.mark.parametrize("named", ["<|eot|>", "<|eos|>"])
def test_several_tokens_may_end_a_text_and_the_named_one_comes_first(
    tmp_path: Path, named: str
) -> None:
    special = ["<|bos|>", "<|eos|>", "<|eom|>", "<|eot|>"]
    place = write(
        write_bytes(
            tmp_path,
            special,
            tokenizer_class="GPT2Tokenizer",
            bos_token="<|bos|>",
            eos_token=named,
            unk_token=None,
        ),
        config_json={"model_type": "gpt2", "eos_token_id": 1},
        generation_config_json={"bos_token_id": 0, "eos_token_id": [1, 2, 3]},
    )
    tokenizer = read_tokenizer(place)
    assert tokenizer.token(tokenizer.eos_id) == named
    assert (tokenizer.eos_ids[0], sorted(tokenizer.eos_ids)) == (tokenizer.eos_id, [1, 2, 3])
    with pytest.raises(DataError, match="no unk token"):
        _ = tokenizer.unk_id


def test_a_config_already_read_is_used_instead_of_the_file(tmp_path: Path) -> None:
    place = write(write_words(tmp_path, BRACKETS), config_json={"eos_token_id": 4})
    assert read_tokenizer(place).eos_id == 4
    assert read_tokenizer(place, {"model_type": "bert", "eos_token_id": 0}).eos_id == 0
    assert read_tokenizer(place, {"pad_token_id": -1}).eos_id == 3


def test_named_tokens_may_be_objects_and_stand_in_the_map(tmp_path: Path) -> None:
    place = write(
        write_words(tmp_path, ["[pad]", "[unk]", "[cls]", "[sep]", "[mask]"]),
        special_tokens_map_json={
            "pad_token": "[pad]",
            "unk_token": {"content": "[unk]", "lstrip": False, "normalized": False},
            "cls_token": {"content": "[cls]"},
            "sep_token": "[sep]",
            "mask_token": {"content": "[mask]", "lstrip": True},
        },
    )
    assert read_tokenizer(place).special_tokens == SpecialTokens(
        "[pad]", "[unk]", "[cls]", "[sep]", "[mask]"
    )


def test_adding_special_tokens_truncates_the_text_and_never_the_special_tokens(
    tmp_path: Path,
) -> None:
    tokenizer = read_tokenizer(write_words(tmp_path, BRACKETS))
    assert tokenizer.add_special_tokens([7, 8, 9]) == [2, 7, 8, 9, 3]
    assert tokenizer.add_special_tokens([7, 8, 9], max_length=4) == [2, 7, 8, 3]
    assert tokenizer.add_special_tokens((7, 8, 9), max_length=5) == [2, 7, 8, 9, 3]
    assert tokenizer.add_special_tokens([7], max_length=2) == [2, 3]
    assert tokenizer.add_special_tokens([]) == [2, 3]
    with pytest.raises(DataError, match="max_length=1 leaves no space for the 2 special tokens"):
        tokenizer.add_special_tokens([7], max_length=1)
    own = Tokenizer.train("bytes", ["a"], 300)
    assert (own.add_special_tokens([7, 8, 9], max_length=2), own.prefix_ids, own.suffix_ids) == (
        [7, 8],
        (),
        (),
    )
    assert own.add_special_tokens([7], max_length=0) == []


def test_copies_keep_the_special_tokens(tmp_path: Path) -> None:
    before = read_tokenizer(write_words(tmp_path, BRACKETS))
    for after in (copy.deepcopy(before), pickle.loads(pickle.dumps(before))):
        assert (after.special_tokens, after.prefix_ids, after.eos_id) == (
            before.special_tokens,
            (2,),
            3,
        )
        assert after.encode("[SEP] the", parse_special=True)[0] == 3
        assert after.encode("[SEP] the")[0] != 3


def test_special_tokens_stand_beside_the_tokenizer_only_if_they_are_not_our_own(
    tmp_path: Path,
) -> None:
    theirs = read_tokenizer(write_words(tmp_path / "theirs", BRACKETS))
    path = tmp_path / "tokenizer.json"
    special_tokens = tmp_path / "special_tokens.json"
    theirs.save(path)
    assert json.loads(special_tokens.read_text(encoding="utf-8")) == {
        "pad": "[PAD]",
        "unk": "[UNK]",
        "bos": "[CLS]",
        "eos": "[SEP]",
        "mask": "[MASK]",
        "extra_eos": [],
        "forced_bos": None,
        "chat_template": None,
        "template_names": {},
        "omit_source_eos": False,
    }
    own = Tokenizer.train("bytes", ["a"], 300)
    own.save(path)
    assert not special_tokens.exists()
    assert Tokenizer.load(path).special_tokens == own.special_tokens == DEFAULT_SPECIAL_TOKENS


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"pads": "x"}, 'unknown field "pads"; did you mean "pad"?'),
        ({"pad": 7}, "pad must be a string or null, not 7"),
        ({"extra_eos": "x"}, "extra_eos must be a list of strings, not 'x'"),
        ({"extra_eos": [None]}, "extra_eos must be a list of strings"),
        ({"template_names": {"bos_token": 3}}, "template_names must be an object of strings"),
        ({"chat_template": ["a"]}, "chat_template must be a string or null"),
        ({"omit_source_eos": 1}, "omit_source_eos must be true or false, not 1"),
        ({"eos": "[NOT]"}, "the vocabulary has no token '[NOT]'"),
        ({"extra_eos": ["[NOT]"]}, "the vocabulary has no token '[NOT]'"),
        ({"forced_bos": "[NOT]"}, "the vocabulary has no token '[NOT]'"),
    ],
)
def test_a_wrong_special_tokens_file_is_told_in_one_line(
    tmp_path: Path, change: dict[str, object], message: str
) -> None:
    path = tmp_path / "tokenizer.json"
    special_tokens = tmp_path / "special_tokens.json"
    read_tokenizer(write_words(tmp_path / "theirs", BRACKETS)).save(path)
    content = json.loads(special_tokens.read_text(encoding="utf-8"))
    special_tokens.write_text(json.dumps({**content, **change}), encoding="utf-8")
    with pytest.raises(DataError) as caught:
        Tokenizer.load(path)
    assert message in str(caught.value)
    assert str(special_tokens) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_file_written_by_an_earlier_version_gives_the_same_special_tokens(tmp_path: Path) -> None:
    theirs = read_tokenizer(write_words(tmp_path / "theirs", BRACKETS))
    theirs.save(tmp_path / "tokenizer.json")
    (tmp_path / "special_tokens.json").unlink()
    legacy = tmp_path / "marks.json"
    content = {
        "pad": "[PAD]",
        "unknown": "[UNK]",
        "start": "[CLS]",
        "end": "[SEP]",
        "mask": None,
        "stops": ["[PAD]"],
        "first": "[CLS]",
        "chat": "{{ messages }}",
        "names": {"bos_token": "[CLS]", "start": "[UNK]"},  # a model may name tokens as it likes
        "bare": True,
    }
    legacy.write_text(json.dumps(content), encoding="utf-8")

    upgraded = Tokenizer.load(tmp_path / "tokenizer.json")
    assert upgraded.special_tokens == SpecialTokens(
        pad="[PAD]",
        unk="[UNK]",
        bos="[CLS]",
        eos="[SEP]",
        mask=None,
        extra_eos=("[PAD]",),
        forced_bos="[CLS]",
        chat_template="{{ messages }}",
        template_names=(("bos_token", "[CLS]"), ("start", "[UNK]")),
        omit_source_eos=True,
    )
    upgraded.save(tmp_path / "tokenizer.json")
    assert not legacy.exists()
    assert Tokenizer.load(tmp_path / "tokenizer.json").special_tokens == upgraded.special_tokens


@pytest.mark.parametrize(
    "content", [b"", b"[]", b"{", b"\xff", b"[" * 100_000, b'{"pad": "<pad>"}']
)
def test_a_special_tokens_file_that_is_none_is_told_in_one_line(
    tmp_path: Path, content: bytes
) -> None:
    Tokenizer.train("bytes", ["a"], 300).save(tmp_path / "tokenizer.json")
    (tmp_path / "special_tokens.json").write_bytes(content)
    with pytest.raises(DataError, match=r"special_tokens\.json") as caught:
        Tokenizer.load(tmp_path / "tokenizer.json")
    assert "\n" not in str(caught.value)
