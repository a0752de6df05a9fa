"""Texts encoded once and mapped afterwards, and the folder they are kept in."""

import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer as Backend
from tokenizers import models, pre_tokenizers

from qkv.data import DocumentChunk, Documents, TokenizedTexts, cache_folder, encode, split_documents
from qkv.data.documents import CHUNK_LENGTH
from qkv.data.tokenized_texts import BATCH_CHARACTERS
from qkv.errors import DataError
from qkv.text import Tokenizer

TEXTS = ["the cat sat", "", "on the mat", "日本語"]
LONG = "".join(f"line {i} of a long text\n" for i in range(BATCH_CHARACTERS // 7))


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.train("bytes", ["any"], 300)


def never() -> Iterator[str]:
    raise AssertionError("the texts were iterated")
    yield ""


def texts_of(encoded: TokenizedTexts) -> list[list[int]]:
    return [ids.tolist() for ids in encoded]


def files_in(folder: Path) -> set[str]:
    return {path.name for path in folder.rglob("*") if path.is_file()}


def test_each_text_has_the_ids_its_tokenizer_gives_it(tmp_path: Path, tokenizer: Tokenizer) -> None:
    encoded = encode(TEXTS, tokenizer, "four", tmp_path)
    ids = tokenizer.encode_many(TEXTS)
    assert texts_of(encoded) == ids
    assert len(encoded) == 4
    assert encoded.lengths.tolist() == [11, 0, 10, 9]
    assert encoded[-1].tolist() == ids[3]
    assert encoded.ids.dtype == np.uint16
    assert isinstance(encoded.ids, np.memmap)
    with pytest.raises(IndexError):
        encoded[4]


def test_in_memory_it_is_the_same(tmp_path: Path, tokenizer: Tokenizer) -> None:
    here = TokenizedTexts.of(tokenizer.encode_many(TEXTS), tokenizer.vocab_size)
    there = encode(iter(TEXTS), tokenizer, "four", tmp_path)
    assert here.ids.tolist() == there.ids.tolist()
    assert here.starts.tolist() == there.starts.tolist()
    assert here.ids.dtype == there.ids.dtype
    assert here.starts.dtype == there.starts.dtype == np.int64


@pytest.mark.parametrize(
    ("vocabulary", "kind"), [(65_536, np.uint16), (65_537, np.int32), (7, np.uint16)]
)
def test_ids_take_two_bytes_if_the_vocabulary_allows_it(vocabulary: int, kind: type) -> None:
    encoded = TokenizedTexts.of([[vocabulary - 1], []], vocabulary)
    assert encoded.ids.dtype == kind
    assert texts_of(encoded) == [[vocabulary - 1], []]


def test_an_end_closes_every_text_and_no_piece_before(tmp_path: Path, tokenizer: Tokenizer) -> None:
    chunks = [
        DocumentChunk("a\n", 0, False),
        DocumentChunk("b", 0, True),
        DocumentChunk("", 1, True),
    ]
    encoded = encode(chunks, tokenizer, "closed", tmp_path, eos=tokenizer.eos_id)
    assert texts_of(encoded) == [[*tokenizer.encode("a\nb"), tokenizer.eos_id], [tokenizer.eos_id]]
    bare = encode(chunks, tokenizer, "closed", tmp_path)
    assert texts_of(bare) == [tokenizer.encode("a\nb"), []]


def test_no_texts_are_no_texts_and_neither_are_empty_ones(
    tmp_path: Path, tokenizer: Tokenizer
) -> None:
    for _ in range(2):
        assert texts_of(encode([], tokenizer, "none", tmp_path)) == []
        assert texts_of(encode(["", ""], tokenizer, "empty", tmp_path)) == [[], []]


@settings(max_examples=25, deadline=None)
@given(lengths=st.lists(st.integers(0, BATCH_CHARACTERS // 3), min_size=1, max_size=11))
def test_texts_stay_apart_however_they_fall_into_chunks(
    lengths: list[int], tokenizer: Tokenizer, tmp_path_factory: pytest.TempPathFactory
) -> None:
    texts = ["a" * length for length in lengths]
    encoded = encode(texts, tokenizer, "lengths", tmp_path_factory.mktemp("cache"))
    assert encoded.lengths.tolist() == lengths


def test_the_pieces_of_a_document_are_one_text(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text(LONG)
    assert len(LONG) > 2 * BATCH_CHARACTERS > 4 * CHUNK_LENGTH
    learned = Tokenizer.train("bpe", ["one line of a long text"], 300)
    train, validation = split_documents(Documents([path]), 0.3, seed=5)
    cut = int(len(LONG) * 0.7)
    for side, text in ((train, LONG[:cut]), (validation, LONG[cut:])):
        assert texts_of(encode(side, learned, side.key, tmp_path)) == [learned.encode(text)]


def test_a_tokenizer_that_would_see_the_seams_gets_whole_documents(tmp_path: Path) -> None:
    letters = sorted(set(LONG) | {"▁"})
    backend = Backend(models.BPE({letter: i for i, letter in enumerate(letters)}, []))
    backend.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always", split=False)
    public = Tokenizer(backend)
    path = tmp_path / "a.txt"
    path.write_text(LONG)
    encoded = encode(Documents([path]), public, "whole", tmp_path)
    assert texts_of(encoded) == [public.encode(LONG)]


def test_what_was_encoded_is_not_iterated_again(tmp_path: Path, tokenizer: Tokenizer) -> None:
    first = encode(TEXTS, tokenizer, "four", tmp_path)
    again = encode(never(), tokenizer, "four", tmp_path)
    assert texts_of(again) == texts_of(first)
    assert len(list(tmp_path.iterdir())) == 1


def test_another_key_tokenizer_or_end_is_another_entry(
    tmp_path: Path, tokenizer: Tokenizer
) -> None:
    other = Tokenizer.train("characters", TEXTS, 300)
    encode(TEXTS, tokenizer, "four", tmp_path)
    assert texts_of(encode(["x"], tokenizer, "one", tmp_path)) == [tokenizer.encode("x")]
    assert texts_of(encode(TEXTS, other, "four", tmp_path)) == other.encode_many(TEXTS)
    encode(TEXTS, tokenizer, "four", tmp_path, eos=3)
    assert len(list(tmp_path.iterdir())) == 4


def test_an_equal_tokenizer_from_a_file_finds_the_entry(
    tmp_path: Path, tokenizer: Tokenizer
) -> None:
    encode(TEXTS, tokenizer, "four", tmp_path / "cache")
    tokenizer.save(tmp_path / "tokenizer.json")
    loaded = Tokenizer.load(tmp_path / "tokenizer.json")
    assert len(encode(never(), loaded, "four", tmp_path / "cache")) == 4


def shorten(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def lie(path: Path) -> None:
    path.write_text(json.dumps({"type": "uint16", "tokens": 3, "texts": 4}))


DAMAGE = {
    "short ids": ("ids", shorten),
    "long ids": ("ids", lambda path: path.write_bytes(path.read_bytes() + b"\0\0")),
    "no ids": ("ids", Path.unlink),
    "short starts": ("starts", shorten),
    "empty starts": ("starts", lambda path: path.write_bytes(b"")),
    "no starts": ("starts", Path.unlink),
    "wrong end": ("starts", lambda path: path.write_bytes(bytes(path.stat().st_size))),
    "other counts": ("about.json", lie),
    "cut about": ("about.json", lambda path: path.write_text('{"type": "ui')),
    "a list": ("about.json", lambda path: path.write_text("[1]")),
    "no about": ("about.json", Path.unlink),
    "unknown type": ("about.json", lambda path: path.write_text('{"type": "x", "tokens": 1}')),
}


@pytest.mark.parametrize("case", DAMAGE)
def test_a_damaged_entry_is_made_again(tmp_path: Path, tokenizer: Tokenizer, case: str) -> None:
    encode(TEXTS, tokenizer, "four", tmp_path)
    (entry,) = tmp_path.iterdir()
    name, damage = DAMAGE[case]
    damage(entry / name)
    assert texts_of(encode(TEXTS, tokenizer, "four", tmp_path)) == tokenizer.encode_many(TEXTS)
    assert len(encode(never(), tokenizer, "four", tmp_path)) == 4
    assert list(tmp_path.iterdir()) == [entry]


def test_texts_that_stop_with_an_error_leave_nothing(tmp_path: Path, tokenizer: Tokenizer) -> None:
    def broken() -> Iterator[str]:
        yield LONG
        raise DataError("line 7: label is empty")

    with pytest.raises(DataError, match="line 7"):
        encode(broken(), tokenizer, "broken", tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_killed_run_leaves_no_entry_and_its_rest_is_swept_a_day_later(
    tmp_path: Path, tokenizer: Tokenizer
) -> None:
    script = (
        "import os, signal, sys\n"
        "from pathlib import Path\n"
        "from qkv.data import encode\n"
        "from qkv.text import Tokenizer\n"
        "def texts():\n"
        f"    yield 'a' * {BATCH_CHARACTERS}\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
        "encode(texts(), Tokenizer.train('bytes', ['any'], 300), 'killed', Path(sys.argv[1]))\n"
    )
    done = subprocess.run([sys.executable, "-c", script, str(tmp_path)], check=False)
    assert done.returncode == -9
    (left,) = tmp_path.iterdir()
    assert texts_of(encode(["b"], tokenizer, "killed", tmp_path)) == [tokenizer.encode("b")]
    assert left.exists()
    yesterday = time.time() - 100_000
    for path in (*left.iterdir(), left):
        os.utime(path, (yesterday, yesterday))
    encode(["c"], tokenizer, "other", tmp_path)
    assert not left.exists()
    assert files_in(tmp_path) == {"ids", "starts", "about.json"}


def test_processes_that_encode_the_same_at_once_all_succeed(tmp_path: Path) -> None:
    script = (
        "import sys\n"
        "from pathlib import Path\n"
        "from qkv.data import encode\n"
        "from qkv.text import Tokenizer\n"
        "tokenizer = Tokenizer.train('bytes', ['any'], 300)\n"
        "sys.stdin.readline()\n"
        "for i in range(20):\n"
        "    found = encode(['a' * 5000, 'b' * i], tokenizer, f'key {i}', Path(sys.argv[1]))\n"
        "    assert found.lengths.tolist() == [5000, i]\n"
    )
    command = [sys.executable, "-c", script, str(tmp_path)]
    processes = [subprocess.Popen(command, stdin=subprocess.PIPE) for _ in range(3)]
    for process in processes:  # they wait for this line, so that they begin together
        assert process.stdin is not None
        process.stdin.write(b"\n")
        process.stdin.close()
    assert [process.wait() for process in processes] == [0, 0, 0]
    assert len(list(tmp_path.iterdir())) == 20


def test_a_folder_that_cannot_be_written_is_named_with_the_way_out(
    tmp_path: Path, tokenizer: Tokenizer
) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(DataError, match=r"cannot cache tokens in .*file/tokens: .*QKV_CACHE") as e:
        encode(TEXTS, tokenizer, "four", tmp_path / "file" / "tokens")
    assert "\n" not in str(e.value)


def test_a_full_disk_is_said_and_leaves_nothing(tmp_path: Path, tokenizer: Tokenizer) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (BATCH_CHARACTERS, before[1]))
    try:
        with pytest.raises(
            DataError, match=r"cannot cache tokens in .*; set QKV_CACHE to a folder"
        ):
            encode([LONG], tokenizer, "long", tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert list(tmp_path.iterdir()) == []


def test_the_folder_is_where_the_environment_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tokenizer: Tokenizer
) -> None:
    monkeypatch.delenv("QKV_CACHE", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_folder() == tmp_path / ".cache" / "qkv" / "tokens"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_folder() == tmp_path / "xdg" / "qkv" / "tokens"
    monkeypatch.setenv("QKV_CACHE", str(tmp_path / "own"))
    assert cache_folder() == tmp_path / "own" / "tokens"
    encode(TEXTS, tokenizer, "four")
    assert files_in(tmp_path / "own" / "tokens") == {"ids", "starts", "about.json"}


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="peak memory is read from /proc")
def test_a_corpus_is_streamed_in_less_memory_than_its_tokens_take(tmp_path: Path) -> None:
    block = "".join(f"line {i} of a text that is far too long\n" for i in range(25_000))
    corpus = tmp_path / "corpus.txt"
    with corpus.open("w") as file:
        for _ in range(40):
            file.write(block)
    size = corpus.stat().st_size  # a token is a byte, and takes two
    script = Path(__file__).with_name("stream_a_corpus.py")
    command = [sys.executable, str(script), str(corpus), str(tmp_path / "cache")]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    documents, characters, tokens, memory = map(int, done.stdout.split())
    assert (documents, characters, tokens) == (1, size, size)
    assert size > 40_000_000
    # Some 30 MB, most of them for the words the library remembers; the text alone is 40.
    assert memory < 0.75 * 2 * tokens
