"""Words and special tokens partition the positions of a text, whatever its language."""

from hypothesis import given, settings
from hypothesis import strategies as st

from qkv.interpret.attribution.words import token_spans, tokenize, word_spans
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
    tokenized = tokenize(tokenizer, text, 10_000, before=[1], after=[2, 3])
    positions = [
        at for span in (*tokenized.words, *tokenized.special_tokens) for at in span.positions
    ]
    assert sorted(positions) == list(range(len(tokenized.ids)))
    assert [token.positions for token in tokenized.special_tokens] == [
        (0,),
        (len(positions) - 2,),
        (len(positions) - 1,),
    ]
    starts = [word.start for word in tokenized.words]
    assert starts == sorted(starts)
    for word in tokenized.words:
        assert text[word.start : word.end] in ("", word.text)
    assert (
        tokenized.positions_of({0}) == set(tokenized.words[0].positions)
        if tokenized.words
        else not tokenized.positions_of(())
    )


def test_pieces_are_joined_where_a_language_has_spaces_and_cut_where_it_has_none() -> None:
    bpe = TOKENIZERS[1]
    text = "unhappy dog doesn't 東京"
    spans = bpe.offsets(text)
    words = word_spans(bpe, text, bpe.encode(text), spans)
    assert [word.text for word in words][:3] == ["unhappy", "dog", "doesn't"]
    assert "".join(word.text for word in words[3:]) == "東京"
    alone = token_spans(bpe, text, bpe.encode(text), spans, first=5)
    assert [span.positions for span in alone] == [(5 + at,) for at in range(len(spans))]
