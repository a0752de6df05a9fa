"""A tokenizer made of a GGUF vocabulary gives the ids of the one the vocabulary came from."""

import io
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.gguf.written_gguf import gguf, write
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from qkv.errors import BundleError
from qkv.gguf import open_gguf
from qkv.gguf.vocabulary import SPLIT_RULES

TEXTS = [
    "Once upon a time, there was a little girl named Lily. She loved to play outside.",
    "  Two spaces   three, a\ttab\nand 12345 digits; don't, WON'T, it's: e=mc^2 <=> ~|x|",
    "def f(x):\n    return x + 1\n\n\nprint(f(2))",
    "Ein Käse für 3 €, naïve café; 日本語のテキスト、中文文本。 Привет мир",
    "aaaaaaaaaaa abababab aaab baaa 1000000 00 0",
] * 3
HOSTILE = [
    "",
    " ",
    "     ",
    "\n",
    " \n \n\n\t ",
    "Once upon",
    " Once upon",
    "   Once   upon ",
    "🙂 emoji 👩‍👩‍👧 \U0001f9ff",
    "日本語 中文 한국어",
    "▁already ▁ marked",
    "<0x0A> <0xE2> spelled",
    "e\u0301 é \u200b \ufeff \u00a0nbsp",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaa" * 3,
    "12345678 ١٢٣ ½ Ⅷ",
    "it's I'LL 'Re we've",
    "x=y; $a+b<c>^d~e|f `g` !!??",
    "\r\n\r\nend\r",
    "\x00\x01\x7f",
    *TEXTS[:5],
]


@pytest.fixture(scope="module")
def pieces():
    """A small SentencePiece model that spells what it does not know in bytes."""
    sentencepiece = pytest.importorskip("sentencepiece", reason="needs SentencePiece itself")
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(TEXTS),
        model_writer=model,
        model_type="bpe",
        vocab_size=420,
        byte_fallback=True,
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
        character_coverage=0.98,
        allow_whitespace_only_pieces=True,
        user_defined_symbols=["<|sep|>"],
        minloglevel=2,
    )
    return sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())


def write_pieces(path, model, describe=lambda writer: None):
    """The vocabulary as `_create_vocab_sentencepiece` of convert_hf_to_gguf.py writes it."""
    every = range(model.vocab_size())
    sorts = [
        2 if model.is_unknown(i)
        else 3 if model.is_control(i)
        else 6 if model.is_byte(i)
        else 5 if model.is_unused(i)
        else 4 if model.id_to_piece(i) == "<|sep|>"
        else 1
        for i in every
    ]  # fmt: skip

    def all_of_it(writer) -> None:
        writer.add_tokenizer_model("llama")
        writer.add_token_list([model.id_to_piece(i) for i in every])
        writer.add_token_scores([model.get_score(i) for i in every])
        writer.add_token_types(sorts)
        describe(writer)

    return open_gguf(write(path, "llama", describe=all_of_it))


def test_pieces_give_the_ids_of_sentencepiece(pieces, tmp_path) -> None:
    ours = write_pieces(tmp_path / "x.gguf", pieces).tokenizer()
    assert ours.get_vocab_size() == pieces.vocab_size()
    for text in HOSTILE:
        expected = pieces.encode(text)
        assert ours.encode(text, add_special_tokens=False).ids == expected, text
        assert ours.decode(expected) == pieces.decode(expected)
        assert ours.encode(text).ids == [pieces.bos_id(), *expected]


def test_pieces_give_the_ids_of_sentencepiece_for_any_text(pieces, tmp_path) -> None:
    ours = write_pieces(tmp_path / "x.gguf", pieces).tokenizer()
    letters = st.text(st.one_of(st.sampled_from("ab ▁\n1.日🙂<0xA>"), st.characters(codec="utf-8")))

    @settings(max_examples=200, deadline=None)
    @given(letters)
    def same(text: str) -> None:
        if "\0" not in text:  # where SentencePiece's own strings end
            assert ours.encode(text, add_special_tokens=False).ids == pieces.encode(text)

    same()


def test_pieces_may_be_read_without_a_space_before_them(pieces, tmp_path) -> None:
    def describe(writer) -> None:
        writer.add_add_space_prefix(False)
        writer.add_add_bos_token(False)
        writer.add_add_eos_token(True)

    found = write_pieces(tmp_path / "x.gguf", pieces, describe)
    ours, text = found.tokenizer(), "Once upon a time"
    assert ours.encode(" " + text, add_special_tokens=False).ids == pieces.encode(text)
    assert ours.encode(" " + text).ids == [*pieces.encode(text), pieces.eos_id()]
    assert ours.decode(pieces.encode(text)) == " " + text
    pair = ours.encode(" " + text, " ")
    assert pair.ids == [*pieces.encode(text), 2, *ours.encode(" ").ids]
    assert pair.type_ids[-1] == 1


def test_marks_are_the_tokens_themselves(pieces, tmp_path) -> None:
    def describe(writer) -> None:
        writer.add_pad_token_id(5)
        writer.add_chat_template("{% for m in messages %}…{% endfor %}")

    found = write_pieces(tmp_path / "x.gguf", pieces, describe)
    assert found.special_tokens() == {
        "bos": "<s>",
        "eos": "</s>",
        "unk": "<unk>",
        "pad": pieces.id_to_piece(5),
        "chat_template": "{% for m in messages %}…{% endfor %}",
    }
    assert write_pieces(tmp_path / "y.gguf", pieces).special_tokens()["pad"] is None
    assert write_pieces(tmp_path / "y.gguf", pieces).special_tokens()["chat_template"] is None


def test_special_tokens_are_read_whole_and_left_out_of_the_text(pieces, tmp_path) -> None:
    ours = write_pieces(tmp_path / "x.gguf", pieces).tokenizer()
    ids = ours.encode("girl</s>girl<|sep|>").ids
    assert ids.count(pieces.eos_id()) == 1
    assert ids[-1] == pieces.piece_to_id("<|sep|>")
    assert ours.decode(ids) == "girl girl<|sep|>"


def test_a_real_vocabulary_gives_the_ids_of_its_tokenizer_json(shared, tmp_path) -> None:
    path = shared / "models" / "stories15M" / "tokenizer.json"
    if not path.is_file():
        pytest.skip("needs shared/models/stories15M")
    theirs = Tokenizer.from_file(str(path))
    size = theirs.get_vocab_size()
    tokens = [theirs.id_to_token(id) for id in range(size)]
    scores = [
        0.0 if id < 259 else -1e9 if set(token) == {"▁"} else 259.0 - id
        for id, token in enumerate(tokens)
    ]  # as in Llama 2: pieces of spaces alone come last, all alike

    def describe(writer) -> None:
        writer.add_tokenizer_model("llama")
        writer.add_token_list(tokens)
        writer.add_token_scores(scores)
        writer.add_token_types([2, 3, 3] + [6] * 256 + [1] * (size - 259))

    ours = open_gguf(write(tmp_path / "x.gguf", "llama", describe=describe)).tokenizer()
    for text in (*HOSTILE, *(" " * count + "return" for count in range(70))):
        assert ours.encode(text).ids == theirs.encode(text).ids, text
        assert ours.decode(ours.encode(text).ids) == theirs.decode(theirs.encode(text).ids)


GPT2 = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
BYTES = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)


def split(expression: str):
    return pre_tokenizers.Split(Regex(expression), "isolated")


# As in the published tokenizer.json of GPT-2, Llama 3, Qwen 2 and SmolLM.
PUBLISHED = {
    "gpt-2": GPT2,
    "smollm": pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), GPT2]),
    "llama-bpe": pre_tokenizers.Sequence(
        [
            split(
                r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|"
                r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
            ),
            BYTES,
        ]
    ),
    "qwen2": pre_tokenizers.Sequence(
        [
            split(
                r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}|"
                r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
            ),
            BYTES,
        ]
    ),
}


def learned(pre: str) -> Tokenizer:
    backend = Tokenizer(models.BPE(ignore_merges=pre == "llama-bpe"))
    backend.pre_tokenizer, backend.decoder = PUBLISHED[pre], decoders.ByteLevel()
    if pre == "qwen2":
        backend.normalizer = normalizers.NFC()
    trainer = trainers.BpeTrainer(
        vocab_size=500,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=["<|start|>", "<|end|>"],
        show_progress=False,
    )
    backend.train_from_iterator(TEXTS, trainer)
    return backend


def write_bytes(path, backend, pre, describe=lambda writer: None):
    stored = json.loads(backend.to_str())["model"]
    size = backend.get_vocab_size()

    def all_of_it(writer) -> None:
        writer.add_tokenizer_model("gpt2")
        if pre is not None:
            writer.add_tokenizer_pre(pre)
        writer.add_token_list([backend.id_to_token(id) for id in range(size)])
        writer.add_token_types([3, 3] + [1] * (size - 2))
        writer.add_token_merges([" ".join(merge) for merge in stored["merges"]])
        writer.add_bos_token_id(0)
        describe(writer)

    return open_gguf(write(path, "llama", describe=all_of_it))


@pytest.mark.parametrize("pre", PUBLISHED)
def test_bytes_give_the_ids_of_the_published_tokenizer(pre, tmp_path) -> None:
    theirs = learned(pre)
    found = write_bytes(tmp_path / "x.gguf", theirs, pre)
    ours = found.tokenizer()
    start = [0] if pre == "llama-bpe" else []
    for text in (*HOSTILE, "a<|end|>b"):
        expected = theirs.encode(text, add_special_tokens=False).ids
        assert ours.encode(text, add_special_tokens=False).ids == expected, text
        assert ours.encode(text).ids == start + expected
        assert ours.decode(expected) == theirs.decode(expected)
    assert found.special_tokens() == dict.fromkeys(["eos", "unk", "pad", "chat_template"]) | {
        "bos": "<|start|>"
    }


def test_a_file_that_does_not_say_how_to_cut_is_cut_as_llama_cpp_does(tmp_path) -> None:
    words = split_words(tmp_path, "a, b12345 c=d!")
    assert words == ["a", ",", "Ġb", "123", "45", "Ġc", "=", "d", "!"]


def split_words(folder, text: str) -> list[str]:
    ours = write_bytes(folder / "x.gguf", learned("gpt-2"), None).tokenizer()
    return [piece for piece, _ in ours.pre_tokenizer.pre_tokenize_str(text)]


def test_an_unknown_split_rule_is_named(tmp_path) -> None:
    found = write_bytes(tmp_path / "x.gguf", learned("gpt-2"), "tekken")
    with pytest.raises(
        BundleError, match="by the unknown rule 'tekken'; supported are default, gpt-2"
    ):
        found.tokenizer()
    assert set(PUBLISHED) | {"default"} == set(SPLIT_RULES)


def vocabulary(writer, **changes) -> None:
    """Five pieces; `changes` replace values, None leaves one out."""
    lists = {
        "tokens": ["<unk>", "<s>", "</s>", "a", "aa"],
        "scores": [0.0, 0.0, 0.0, -2.0, -1.0],
        "token_type": [2, 3, 3, 1, 1],
        "model": "llama",
        **changes,
    }
    for key, value in lists.items():
        if isinstance(value, list):
            writer.add_array(f"tokenizer.ggml.{key}", value)
        elif isinstance(value, str):
            writer.add_string(f"tokenizer.ggml.{key}", value)
        elif isinstance(value, bool):
            writer.add_bool(f"tokenizer.ggml.{key}", value)
        elif value is not None:
            writer.add_uint32(f"tokenizer.ggml.{key}", value)


DAMAGED = {
    "no model": ({"model": None}, "has no tokenizer.ggml.model"),
    "another model": ({"model": "t5"}, "of type 't5'; supported are llama, gpt2"),
    "no tokens": ({"tokens": None}, "has no tokenizer.ggml.tokens"),
    "tokens that are numbers": ({"tokens": [1, 2]}, "a list of 2; expected a list of str"),
    "a token twice": ({"tokens": ["<unk>", "<s>", "</s>", "a", "a"]}, "token 'a' twice"),
    "too few scores": ({"scores": [0.0]}, "5 tokens and 1 scores"),
    "no scores": ({"scores": None}, "has no tokenizer.ggml.scores"),
    "a score that is NaN": ({"scores": [float("nan")] * 5}, "finite"),
    "too few types": ({"token_type": [1]}, "5 tokens and 1 token types"),
    "an undefined type": ({"token_type": [2, 3, 3, 1, 9]}, "has type 9"),
    "bos out of range": ({"bos_token_id": 5}, "is 5, but the token ids are 0 to 4"),
    "an endless token": ({"tokens": ["<unk>", "<s>", "</s>", "a", "a" * 513]}, "513 characters"),
    "a bos that is required but missing": (
        {"model": "gpt2", "pre": "gpt-2", "merges": ["a a"], "add_bos_token": True},
        "wants a bos token",
    ),
    "half a merge": ({"model": "gpt2", "pre": "gpt-2", "merges": ["a"]}, "the merge 'a'"),
    "a merge of no token": (
        {"model": "gpt2", "pre": "gpt-2", "merges": ["a b"]},
        "no tokenizer can be built",
    ),
}


@pytest.mark.parametrize("case", DAMAGED)
def test_a_damaged_vocabulary_is_an_error(case, tmp_path) -> None:
    changes, message = DAMAGED[case]
    found = open_gguf(
        write(tmp_path / "x.gguf", "llama", describe=lambda writer: vocabulary(writer, **changes))
    )
    with pytest.raises(BundleError) as caught:
        found.tokenizer()
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_without_bytes_what_is_unknown_is_one_token(tmp_path) -> None:
    found = open_gguf(write(tmp_path / "x.gguf", "llama", describe=vocabulary))
    assert found.tokenizer().encode("aaa 🙂🙂").tokens == ["<s>", "<unk>", "aa", "a", "<unk>"]
    assert gguf.TokenType.UNKNOWN == 2
