"""Pieces of text: never half a character, and together exactly what the tokenizer says."""

from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Regex, decoders, models
from tokenizers import Tokenizer as Backend

from qkv.bundle import Bundle
from qkv.engine.generate import Detokenizer
from qkv.engine.generate.streaming import StopStrings
from qkv.errors import UsageError
from qkv.text import Tokenizer

TEXTS = [
    "The cat sat on the mat, and the dog didn't. Ünïcödé — naïve café 日本語 😀👍 שלום",
    "  spaces  before   and\n\nlines\tof text; 1234567890",
] * 3
PIECES = ["▁", "▁▁", "▁a", "a", "b▁", "▁the", "é", ".", "日", "▁\n"]
BYTES = [f"<0x{byte:02X}>" for byte in range(256)]


def learnt(kind: str, size: int = 320) -> Callable[[], Tokenizer]:
    return lambda: Tokenizer.train(kind, TEXTS, size)


def pieces(decoder: decoders.Decoder, extra: list[str]) -> Tokenizer:
    """A tokenizer of a public kind, made by hand."""
    tokens = ["<unk>", "<s>", "</s>", *extra, *PIECES]
    backend = Backend(models.BPE({t: i for i, t in enumerate(tokens)}, [], unk_token="<unk>"))
    backend.decoder = decoder
    backend.add_special_tokens(["<s>", "</s>"])
    return Tokenizer(backend)


def space(*more: decoders.Decoder) -> decoders.Decoder:
    return decoders.Sequence([decoders.Replace("▁", " "), *more])


KINDS: dict[str, Callable[[], Tokenizer]] = {
    "bytes": learnt("bytes"),
    "bpe": learnt("bpe"),
    "wordpiece": learnt("wordpiece"),
    "unigram": learnt("unigram", 120),
    "characters": learnt("characters", 60),
    "llama": lambda: pieces(
        space(decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)), BYTES
    ),
    "gemma": lambda: pieces(space(decoders.ByteFallback(), decoders.Fuse()), BYTES),
    "metaspace": lambda: pieces(decoders.Metaspace(prepend_scheme="always"), []),
    "marian": lambda: pieces(space(decoders.Fuse(), decoders.Replace(Regex(r"\A +| +\z"), "")), []),
}
MADE: dict[str, Tokenizer] = {}


def tokenizer(kind: str) -> Tokenizer:
    if kind not in MADE:
        MADE[kind] = KINDS[kind]()
    return MADE[kind]


def streamed(tokenizer: Tokenizer, ids: list[int]) -> list[str]:
    stream = Detokenizer(tokenizer)
    return [*(stream.push(id) for id in ids), stream.finish()]


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=80, deadline=None)
@given(data=st.data())
def test_the_pieces_of_random_ids_are_the_text_of_all_of_them(
    kind: str, data: st.DataObject
) -> None:
    t = tokenizer(kind)
    ids = data.draw(st.lists(st.integers(0, t.vocab_size - 1), max_size=40))
    assert "".join(streamed(t, ids)) == t.decode(ids)


@pytest.mark.parametrize("kind", ["bytes", "bpe", "llama", "gemma"])
@settings(max_examples=60, deadline=None)
@given(text=st.text(st.characters(codec="utf-8"), max_size=30), noise=st.integers(0, 7))
def test_bytes_of_real_text_with_some_missing(kind: str, text: str, noise: int) -> None:
    t = tokenizer(kind)
    names = BYTES if kind in ("llama", "gemma") else None
    ids = [t.token_to_id(names[b]) for b in text.encode()] if names else t.encode(text)
    del ids[noise::11]
    assert "".join(streamed(t, ids)) == t.decode(ids)


def test_a_character_of_several_tokens_comes_whole() -> None:
    t = tokenizer("bytes")
    assert streamed(t, t.encode("a😀é!")) == ["a", "", "", "", "😀", "", "é", "!", ""]


def test_bytes_that_never_become_a_character_do_not_pile_up() -> None:
    """Of 3,000 stray bytes hardly any is waiting, and no step decodes more than a few."""
    t = tokenizer("bytes")
    stray = t.encode("😀")[1:]
    stream, shown, longest = Detokenizer(t), 0, 0
    decode = stream._decode

    def counting(ids: list[int]) -> str:
        nonlocal longest
        longest = max(longest, len(ids))
        return decode(ids)

    stream._decode = counting  # type: ignore[method-assign]
    for i in range(3000):
        shown += len(stream.push(stray[i % 3]))
    assert shown > 2980
    assert longest < 12


def test_published_tokenizers(shared: Path) -> None:
    draws = Random(5)
    for name in ("stories260K", "stories15M"):
        t = Bundle.load(shared / "models" / name).tokenizer
        assert t is not None
        bytes_of = [t.token_to_id(name) for name in BYTES]
        for _ in range(60):
            ids = [
                draws.choice((draws.randrange(t.vocab_size), draws.choice(bytes_of)))
                for _ in range(25)
            ]
            assert "".join(streamed(t, ids)) == t.decode(ids)


@settings(max_examples=200, deadline=None)
@given(
    pieces=st.lists(st.text("ab.", max_size=4), max_size=12),
    stops=st.lists(st.text("ab.", min_size=1, max_size=5), max_size=3),
)
def test_text_ends_before_the_first_stop_text(pieces: list[str], stops: list[str]) -> None:
    watch, shown = StopStrings(stops), ""
    stopped = False
    for number, piece in enumerate(pieces):
        text, stopped = watch.push(piece)
        shown += text
        so_far = "".join(pieces[: number + 1])
        assert stopped == any(stop in so_far for stop in stops)
        assert so_far.startswith(shown)
        assert not any(stop in shown for stop in stops)
        if stopped:
            break
    whole = "".join(pieces)
    if stopped:
        assert shown == whole[: min(whole.find(stop) for stop in stops if stop in so_far)]
    else:
        assert shown + watch.finish() == whole


def test_only_what_could_become_a_stop_text_is_held_back() -> None:
    watch = StopStrings(["END", "."])
    assert [watch.push(piece) for piece in ("x", "yE", "N", "Q", "E", "ND.")] == [
        ("x", False), ("y", False), ("", False), ("ENQ", False), ("", False), ("", True),
    ]  # fmt: skip


def test_wrong_stop_texts_are_refused() -> None:
    with pytest.raises(UsageError, match="empty"):
        StopStrings(["a", ""])
    with pytest.raises(UsageError, match="a list of texts"):
        StopStrings("END")
