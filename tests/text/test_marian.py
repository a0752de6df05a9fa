"""A tokenizer of two languages: each cuts its own texts, one vocabulary has the ids."""

import pickle
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.text.published import HOSTILE, open_with_peer, write, write_marian

from qkv.errors import DataError
from qkv.text import Tokenizer, read_tokenizer

TEXTS = [
    *HOSTILE,
    "Der Hund öffnet die Wissenschaft.",
    ">>fr<< the cat",
    ">>xx<< the cat",
    "the >>fr<< cat",
    ">> the cat",
    ">>fr<<",
]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_marian(tmp_path_factory.mktemp("marian") / "files")


@pytest.fixture(scope="module")
def both(place: Path) -> tuple[Tokenizer, Any]:
    return read_tokenizer(place), open_with_peer(place, "MarianTokenizer")


def same(ours: Tokenizer, theirs: Any, text: str) -> None:
    for target in (False, True):
        given = {"text_target" if target else "text": text}
        for special in (False, True):
            expected = theirs(**given, split_special_tokens=not special)["input_ids"]
            assert (
                ours.add_special_tokens(ours.encode(text, parse_special=special, target=target))
                == expected
            )
            shown = theirs.decode(
                expected, skip_special_tokens=True, clean_up_tokenization_spaces=False
            )
            assert ours.decode(expected) == shown


@pytest.mark.parametrize("text", TEXTS)
def test_both_languages_give_the_ids_of_the_peer(both: tuple[Tokenizer, Any], text: str) -> None:
    same(*both, text)


@settings(max_examples=150, deadline=None)
@given(
    text=st.one_of(
        st.text(max_size=30, alphabet=st.characters(max_codepoint=0x2FF)),
        st.lists(st.sampled_from([*TEXTS[:12], "</s>", "cat", " ", "Katze", "▁"])).map("".join),
    )
)
def test_both_languages_give_the_ids_of_the_peer_on_any_text(
    both: tuple[Tokenizer, Any], text: str
) -> None:
    same(*both, text)


def test_it_starts_with_padding_and_ends_with_the_one_mark(both: tuple[Tokenizer, Any]) -> None:
    ours, theirs = both
    assert (ours.bos_id, ours.pad_id) == (theirs.pad_token_id, theirs.pad_token_id)
    assert (ours.eos_id, ours.prefix_ids, ours.suffix_ids) == (0, (), (0,))
    assert ours.vocab_size == len(theirs)
    assert ours.encode(">>de<< the cat")[0] == 3


@pytest.mark.parametrize("text", TEXTS)
def test_offsets_lead_to_the_characters_of_a_source_text(
    both: tuple[Tokenizer, Any], text: str
) -> None:
    ours, _ = both
    spans = ours.offsets(text)
    assert len(spans) == len(ours.encode(text))
    assert spans == sorted(spans)
    assert all(0 <= first <= stop <= len(text) for first, stop in spans)


def test_saved_and_copied_it_still_has_two_languages(
    both: tuple[Tokenizer, Any], tmp_path: Path
) -> None:
    ours, _ = both
    ours.save(tmp_path / "tokenizer.json")
    loaded = Tokenizer.load(tmp_path / "tokenizer.json")
    for copy in (loaded, pickle.loads(pickle.dumps(ours))):
        for target in (False, True):
            for special in (False, True):
                found = copy.encode_many(TEXTS, special, target)
                assert found == ours.encode_many(TEXTS, special, target)
    Tokenizer.train("bytes", ["a"], 300).save(tmp_path / "tokenizer.json")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["tokenizer.json"]


def test_two_languages_with_our_own_marks_come_back(tmp_path: Path) -> None:
    """Then no special_tokens.json is written that would tell of them."""
    own = Tokenizer.train("bytes", ["a"], 300)
    cutters = [Tokenizer.train(kind, ["the cat"], 300) for kind in ("characters", "bytes")]
    before = own.with_language_pair((cutters[0]._backend, cutters[1]._backend))
    before.save(tmp_path / "tokenizer.json")
    assert not (tmp_path / "special_tokens.json").exists()
    after = Tokenizer.load(tmp_path / "tokenizer.json")
    assert after.has_language_pair
    assert after.encode("the cat") == before.encode("the cat")


@pytest.mark.parametrize("missing", ["source.json", "target.json"])
def test_one_language_of_two_is_refused(
    both: tuple[Tokenizer, Any], missing: str, tmp_path: Path
) -> None:
    both[0].save(tmp_path / "tokenizer.json")
    (tmp_path / missing).unlink()
    with pytest.raises(DataError, match=rf"{missing} is missing; source\.json and"):
        Tokenizer.load(tmp_path / "tokenizer.json")


def test_other_tokenizers_take_a_target_like_any_text() -> None:
    own = Tokenizer.train("bytes", ["a"], 300)
    assert own.encode("abc", target=True) == own.encode("abc")


def test_what_is_missing_or_not_read_is_told(place: Path, tmp_path: Path) -> None:
    for name in ("source.spm", "vocab.json"):
        (tmp_path / name).write_bytes((place / name).read_bytes())
    with pytest.raises(DataError, match=r"target\.spm"):
        read_tokenizer(tmp_path)
    write(tmp_path, target_vocab_json={"a": 0})
    with pytest.raises(DataError, match="two vocabularies"):
        read_tokenizer(tmp_path)
    with pytest.raises(DataError, match="half a character"):
        read_tokenizer(place).encode("\ud800")
