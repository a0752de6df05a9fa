"""Where a document may be cut: the chunks make up the text, and no tokenizer notices."""

import io

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qkv.data.documents import CHUNK_LENGTH, DocumentChunk, chunk_lines, join_chunks
from qkv.text import TOKENIZER_KINDS, Tokenizer

TEXTS = [
    "The cat sat on the mat, and the dog didn't.\n",
    "  Zwei Hunde spielen\nim Schnee;\tes ist\nkalt: −3 °C.\n\n1234567890\n",
    "<pad> <unknown> <start>\n<end> <mask>\n" * 3,
]
PARTS = [
    "\n", "\n", "\n", " ", "  ", "\t", "\r", "\x0b", "\x0c", "\x1c", "\x1f", "\x85", "\xa0",
    "\u180e", "\u200b", "\u2028", "\u3000", "\ufeff", "\0", "a", "b", "The", "'s", "'", "ll", "7",
    "-", "e\u0301", "\u0301", "Σ", "ς", "日", "👩‍👩‍👧", "<pad>", "##a", "▁", "Ġ",
    "a" * 70, "-" * 65,
]  # fmt: skip
texts = st.one_of(
    st.lists(st.sampled_from(PARTS), max_size=60).map("".join),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=40),
)


def lines_of(text: str) -> list[str]:
    return list(io.StringIO(text, newline="\n"))


@pytest.fixture(scope="module")
def tokenizers() -> dict[str, Tokenizer]:
    return {kind: Tokenizer.train(kind, TEXTS, 400) for kind in TOKENIZER_KINDS}


@pytest.mark.parametrize("kind", TOKENIZER_KINDS)
@settings(max_examples=300, deadline=None)
@given(text=texts, length=st.integers(1, 13))
def test_the_tokens_of_the_pieces_are_the_tokens_of_the_whole(
    tokenizers: dict[str, Tokenizer], kind: str, text: str, length: int
) -> None:
    chunks = [chunk.text for chunk in chunk_lines(lines_of(text), 5, length)]
    ids_of_chunks = [id for ids in tokenizers[kind].encode_many(chunks) for id in ids]
    assert ids_of_chunks == tokenizers[kind].encode(text)


@given(text=texts, length=st.integers(1, 13))
def test_the_pieces_are_the_text_and_only_the_last_says_so(text: str, length: int) -> None:
    chunks = list(chunk_lines(lines_of(text), 5, length))
    assert [*join_chunks(chunks)] == [text]
    assert [chunk.last for chunk in chunks] == [False] * (len(chunks) - 1) + [True]
    assert {chunk.document for chunk in chunks} == {5}
    assert all(len(chunk.text) >= length for chunk in chunks[:-1])


def test_a_cut_needs_words_on_both_sides_of_one_line_break() -> None:
    lines = ["a\n", "b\n", " c\n", "d \n", "e\n", "\n", "f\n", "g"]
    assert [chunk.text for chunk in chunk_lines(lines, 0, 1)] == [
        "a\n",
        "b\n c\n",
        "d \ne\n\nf\n",
        "g",
    ]


def test_a_piece_grows_until_it_may_end() -> None:
    blank = ["word \n"] * CHUNK_LENGTH
    assert len(list(chunk_lines(blank, 0))) == 1
    assert len(list(chunk_lines(["word\n"] * CHUNK_LENGTH, 0))) == 5


def test_the_pieces_of_several_documents_are_joined_one_by_one() -> None:
    chunks = [
        DocumentChunk("a\n", 0, False),
        DocumentChunk("b", 0, True),
        DocumentChunk("", 1, True),
        DocumentChunk("c", 2, True),
    ]
    assert list(join_chunks(chunks)) == ["a\nb", "", "c"]
