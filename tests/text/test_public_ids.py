"""A published tokenizer gives the ids that `transformers` gives, on text nobody would expect."""

import functools
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.text.published import (
    HOSTILE,
    PUBLISHED,
    class_of,
    copied,
    ids,
    minilm,
    open_with_peer,
    train_bytes,
    write,
    write_pieces,
    write_words,
)

from qkv.text import Tokenizer, read_tokenizer

LOOK_ALIKES = ["[SEP]", "</s>", "<s>", "<|endoftext|>", "<extra_id_0>", "[MASK]", "<mask>", "en_XX"]
any_text = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=40),
    st.lists(st.sampled_from([*HOSTILE[:12], *LOOK_ALIKES, " ", "a", "\n", "▁"])).map("".join),
)
# From its vocabulary files, and from the tokenizer.json that the peer saves of it.
PLACES = [f"{name}{how}" for name in PUBLISHED for how in ("", " as saved")]


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Both readers of a place, each place made once."""

    @functools.cache
    def both(place: str) -> tuple[Tokenizer, Any]:
        name = place.removesuffix(" as saved")
        directory = PUBLISHED[name](tmp_path_factory.mktemp("published") / "files")
        theirs = open_with_peer(directory, class_of(name))
        if name != place:
            theirs.save_pretrained(directory.parent / "saved")
            directory = directory.parent / "saved"
            theirs = open_with_peer(directory, class_of(name))
        return read_tokenizer(directory), theirs

    return both


def same(ours: Tokenizer, theirs: Any, text: str) -> None:
    for special in (False, True):
        found = ours.encode(text, parse_special=special)
        assert found == ids(theirs, text, split=not special)
        assert ours.add_special_tokens(found) == ids(theirs, text, around=True, split=not special)
    wrapped = ids(theirs, text, around=True)
    expected = theirs.decode(wrapped, skip_special_tokens=True, clean_up_tokenization_spaces=False)
    assert ours.decode(wrapped) == expected


@pytest.mark.parametrize("place", PLACES)
def test_ids_and_text_are_those_of_the_peer(opened: Any, place: str) -> None:
    ours, theirs = opened(place)
    assert ours.vocab_size == len(theirs)
    assert [ours.token(id) for id in range(ours.vocab_size)]
    for text in HOSTILE:
        same(ours, theirs, text)


@pytest.mark.parametrize("place", PLACES[::2])
@settings(max_examples=40, deadline=None)
@given(text=any_text)
def test_ids_are_those_of_the_peer_on_any_text(opened: Any, place: str, text: str) -> None:
    same(*opened(place), text)


@pytest.mark.parametrize("place", PLACES)
def test_a_tokenizer_saved_here_is_the_same_after_loading(
    opened: Any, place: str, tmp_path: Path
) -> None:
    before, _ = opened(place)
    before.save(tmp_path / "tokenizer.json")
    after = Tokenizer.load(tmp_path / "tokenizer.json")
    assert (after.special_tokens, after.prefix_ids, after.suffix_ids) == (
        before.special_tokens,
        before.prefix_ids,
        before.suffix_ids,
    )
    assert (after.special_ids, after.eos_ids) == (before.special_ids, before.eos_ids)
    for special in (False, True):
        assert after.encode_many(HOSTILE, special) == before.encode_many(HOSTILE, special)


@pytest.mark.parametrize("place", ["bert", "llama", "roberta", "gpt2"])
def test_special_tokens_in_a_text_are_text_unless_asked_for(opened: Any, place: str) -> None:
    ours, _ = opened(place)
    text = " ".join(ours.token(id) for id in ours.special_ids)
    # An unknown character is the one special token that a text may hold.
    assert not (ours.special_ids - {ours.unk_id}) & set(ours.encode(text))
    assert ours.special_ids <= set(ours.encode(text, parse_special=True))


def test_a_unigram_vocabulary_holds_its_special_tokens_so_they_are_read_in_any_text(
    opened: Any,
) -> None:
    ours, theirs = opened("t5")
    assert ours.eos_id in ours.encode("a</s>b")
    assert ours.eos_id in ids(theirs, "a</s>b", split=True)


def bert_json(place: Path, **options: object) -> Path:
    """A BERT whose tokenizer.json lower-cases and whose other files may say something else."""
    made = PUBLISHED["bert"](place / "files")
    open_with_peer(made, "BertTokenizer").save_pretrained(place / "saved")
    return write(place / "saved", tokenizer_config_json=options)


def byte_json(place: Path, **options: object) -> Path:
    train = train_bytes(["<|endoftext|>", "<s>", "</s>", "<unk>"])
    return write(place, tokenizer_json=train.to_str(), tokenizer_config_json=options)


def llama_json(place: Path, **options: object) -> Path:
    made = PUBLISHED["llama legacy"](place / "files")
    open_with_peer(made, "LlamaTokenizer").save_pretrained(place / "saved")
    return write(place / "saved", tokenizer_config_json=options)


CONTRADICTIONS = {
    "the class lower-cases, the option does not": lambda d: write(
        bert_json(d, tokenizer_class="BertTokenizer", do_lower_case=False),
        config_json={"model_type": "bert"},
    ),
    "no class is named, the model is a BERT": lambda d: write(
        bert_json(d, do_lower_case=False), config_json={"model_type": "bert"}
    ),
    "the class says to take the file as it is": lambda d: write(
        bert_json(d, tokenizer_class="PreTrainedTokenizerFast", do_lower_case=False),
        config_json={"model_type": "bert"},
    ),
    "a DistilBERT that says it is a BERT": lambda d: write(
        bert_json(d, tokenizer_class="BertTokenizer", strip_accents=False),
        config_json={"model_type": "distilbert"},
    ),
    "a Llama class around bytes": lambda d: write(
        byte_json(d, tokenizer_class="LlamaTokenizerFast"), config_json={"model_type": "llama"}
    ),
    "a Llama class, legacy": lambda d: write(
        llama_json(d, tokenizer_class="LlamaTokenizer", legacy=True),
        config_json={"model_type": "llama"},
    ),
    "a Llama class, not legacy": lambda d: write(
        llama_json(d, tokenizer_class="LlamaTokenizer", legacy=False, add_bos_token=False),
        config_json={"model_type": "llama"},
    ),
    "a Llama class in a Mistral": lambda d: write(
        llama_json(d, tokenizer_class="LlamaTokenizer", legacy=True),
        config_json={"model_type": "mistral"},
    ),
    "GPT-2 with bytes and a prefix space": lambda d: write(
        byte_json(d, tokenizer_class="GPT2Tokenizer", add_prefix_space=True),
        config_json={"model_type": "gpt2"},
    ),
    "a class of GPT-2 in a Qwen2": lambda d: write(
        byte_json(d, tokenizer_class="GPT2Tokenizer"), config_json={"model_type": "qwen2"}
    ),
    "a class nobody knows": lambda d: write(
        byte_json(d, tokenizer_class="MysteryTokenizer"), config_json={"model_type": "gpt2"}
    ),
}


@pytest.mark.parametrize("name", CONTRADICTIONS)
def test_files_that_contradict_each_other_are_read_as_the_peer_reads_them(
    name: str, tmp_path: Path
) -> None:
    directory = CONTRADICTIONS[name](tmp_path)
    ours, theirs = read_tokenizer(directory), open_with_peer(directory)
    for text in HOSTILE:
        same(ours, theirs, text)


def test_the_real_minilm_is_read_from_either_of_its_files(tmp_path: Path) -> None:
    theirs = open_with_peer(minilm())
    whole = read_tokenizer(minilm())
    parts = read_tokenizer(copied(minilm(), tmp_path / "parts", without=("tokenizer.json",)))
    assert whole.vocab_size == parts.vocab_size == len(theirs) == 30522
    for text in HOSTILE:
        same(whole, theirs, text)
        same(parts, theirs, text)
    assert whole.special_tokens == parts.special_tokens
    assert (whole.bos_id, whole.eos_id) == (101, 102) == (whole.prefix_ids[0], whole.suffix_ids[0])


@pytest.mark.parametrize("name", ["stories15M", "stories260K"])
def test_real_llamas_give_the_ids_of_the_peer(shared: Path, name: str) -> None:
    directory = shared / "models" / name
    if not directory.is_dir():
        pytest.skip(f"needs {name} in the shared folder")
    ours, theirs = read_tokenizer(directory), open_with_peer(directory)
    assert (ours.bos_id, ours.eos_id, ours.prefix_ids) == (1, 2, (1,))
    for text in HOSTILE:
        same(ours, theirs, text)


def test_words_and_pieces_read_as_people_write_them(tmp_path: Path) -> None:
    words = read_tokenizer(
        write_words(tmp_path / "w", ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"])
    )
    assert [words.token(id) for id in words.encode("the cats")][:1] == ["the"]
    pieces = read_tokenizer(PUBLISHED["llama"](tmp_path / "p"))
    assert [pieces.token(id) for id in pieces.encode("the Ω\n")] == [
        " the", " ", "\\xce", "\\xa9", "\\n",
    ]  # fmt: skip
    assert pieces.token(pieces.bos_id) == "<s>"
    unigram = read_tokenizer(PUBLISHED["t5"](tmp_path / "u"))
    assert "".join(unigram.token(id) for id in unigram.encode("the cat")) == " the cat"
    assert (words.kind, pieces.kind, unigram.kind) == ("wordpiece", "bpe", "unigram")


def test_a_sentencepiece_model_needs_no_class(tmp_path: Path) -> None:
    named = read_tokenizer(PUBLISHED["plain bpe"](tmp_path / "named"))
    bare = read_tokenizer(
        write_pieces(tmp_path / "bare", "tokenizer.model", "bpe", 600, byte_fallback=True)
    )
    assert bare.encode_many(HOSTILE) == named.encode_many(HOSTILE)
    assert (bare.special_tokens.bos, bare.special_tokens.eos, bare.special_tokens.unk) == (
        "<s>",
        "</s>",
        "<unk>",
    )


@pytest.mark.slow
@pytest.mark.parametrize("place", ["bert", "gpt2", "qwen", "t5", "mbart50", "llama", "gemma"])
@pytest.mark.parametrize("letter", ["a", " ", "日", "☃", "a\u0301"])
def test_a_million_times_one_letter_is_encoded_at_once(
    opened: Any, place: str, letter: str
) -> None:
    ours, _ = opened(place)
    start = time.process_time()
    ours.encode(letter * (1_000_000 // len(letter)))
    assert time.process_time() - start < 20
