"""Words and marks share out the positions of a text, whatever language it is in."""

from hypothesis import given, settings
from hypothesis import strategies as st

from qkv.interpret.attribution.words import pieces, read, token_spans
from qkv.text import Tokenizer

TEXTS = ["the unhappy dog doesn't run", "Größe und Maß", "東京は大きい", "a, b; c…  d\n"]
TOKENIZERS = [
    Tokenizer.train(kind, TEXTS * 3, 330) for kind in ("bytes", "bpe", "characters", "wordpiece")
]
ANY = st.one_of(
    st.sampled_from(TEXTS),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=30),
    st.lists(st.sampled_from([*"ab ,東京\n", "don't ", "ไทย", "🐕‍🦺"]), max_size=12).map("".join),
)


@settings(max_examples=120, deadline=None)
@given(ANY, st.sampled_from(TOKENIZERS))
def test_each_position_belongs_to_one_word_or_mark(text: str, tokenizer: Tokenizer) -> None:
    seen = read(tokenizer, text, 10_000, before=[1], after=[2, 3])
    places = [at for piece in (*seen.words, *seen.marks) for at in piece.at]
    assert sorted(places) == list(range(len(seen.ids)))
    assert [mark.at for mark in seen.marks] == [(0,), (len(places) - 2,), (len(places) - 1,)]
    starts = [word.start for word in seen.words]
    assert starts == sorted(starts)
    for word in seen.words:
        assert text[word.start : word.end] in ("", word.text)
    assert seen.places({0}) == set(seen.words[0].at) if seen.words else not seen.places(())


def test_pieces_are_joined_where_a_language_has_spaces_and_cut_where_it_has_none() -> None:
    bpe = TOKENIZERS[1]
    text = "unhappy dog doesn't 東京"
    spans = bpe.offsets(text)
    words = pieces(bpe, text, bpe.encode(text), spans)
    assert [word.text for word in words][:3] == ["unhappy", "dog", "doesn't"]
    assert "".join(word.text for word in words[3:]) == "東京"
    alone = token_spans(bpe, text, bpe.encode(text), spans, first=5)
    assert [piece.at for piece in alone] == [(5 + at,) for at in range(len(spans))]
