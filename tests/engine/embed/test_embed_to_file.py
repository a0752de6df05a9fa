"""Vectors onto disk: the bytes numpy would save, whatever interrupts the work, in flat memory."""

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.engine.embed.tiny_encoders import WIDTH, WORDS, encoder, sentences, tokenizer

from qkv.engine.embed import Embedder, Embeddings, VectorFile, embed, embed_to_file
from qkv.errors import DataError, UsageError

TEXTS = sentences(61)
LONG = " ".join(WORDS * 5)
OPTIONS = {"model": "abc", "raw": False, "long": "error"}
FORMATS = ("npy", "parquet")
EMBED = Embedder(encoder(), tokenizer(marked=True))


@pytest.fixture(autouse=True)
def small_portions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("qkv.engine.embed.embedder.BATCH_TEXTS", 7)


class Stopped:
    """Embeds so many portions, and is interrupted in the next."""

    def __init__(self, text_batches: int) -> None:
        self.left = text_batches + 1  # it is first asked for no text, to see how wide a vector is

    def __call__(self, texts: Sequence[str], first: int) -> Embeddings:
        if not self.left:
            raise KeyboardInterrupt
        self.left -= 1
        return EMBED(texts, first)


def stop(path: Path, text_batches: int, texts: Sequence[str] = TEXTS) -> None:
    with pytest.raises(KeyboardInterrupt):
        embed_to_file(Stopped(text_batches), texts, path, OPTIONS)


def beside(path: Path) -> list[str]:
    return sorted(other.name for other in path.parent.iterdir())


def test_the_file_is_the_one_numpy_would_save(tmp_path: Path) -> None:
    path = tmp_path / "a.npy"
    assert embed_to_file(EMBED, iter(TEXTS), path, OPTIONS) == VectorFile(61, 0)
    vectors = embed(EMBED.model, EMBED.tokenizer, TEXTS).vectors
    np.save(tmp_path / "b.npy", vectors)
    assert path.read_bytes() == (tmp_path / "b.npy").read_bytes()
    mapped = np.load(path, mmap_mode="r")
    assert mapped.shape == (61, WIDTH)
    assert np.array_equal(mapped[50:60], vectors[50:60])
    assert beside(path) == ["a.npy", "b.npy"]


def test_a_parquet_file_has_the_texts_beside_their_vectors(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow is an extra")
    path, texts = tmp_path / "a.parquet", [*TEXTS, "", "nul \0", "two\nlines", "日本 😀\u2028"]
    embed_to_file(EMBED, texts, path, OPTIONS)
    table = parquet.read_table(path)
    assert table.column_names == ["text", "vector"]
    assert table["text"].to_pylist() == texts
    vectors = np.array(table["vector"].to_pylist(), dtype=np.float32)
    assert np.array_equal(vectors, embed(EMBED.model, EMBED.tokenizer, texts).vectors)
    assert beside(path) == ["a.parquet"]


@pytest.mark.parametrize("ending", FORMATS)
def test_no_texts_are_a_file_without_rows(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"a.{ending}"
    assert embed_to_file(EMBED, [], path, OPTIONS) == VectorFile(0, 0)
    if ending == "npy":
        assert np.load(path).shape == (0, WIDTH)
    else:
        parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow is an extra")
        assert parquet.read_table(path).num_rows == 0


@pytest.mark.parametrize("ending", FORMATS)
def test_wherever_it_is_interrupted_the_bytes_are_the_same(tmp_path: Path, ending: str) -> None:
    whole = tmp_path / f"whole.{ending}"
    embed_to_file(EMBED, TEXTS, whole, OPTIONS)
    for text_batches in range(9):
        path = tmp_path / f"{text_batches}.{ending}"
        stop(path, text_batches)
        assert not path.exists()
        with (tmp_path / f"{path.name}.part").open("ab") as part:
            part.write(b"torn" * text_batches)  # a portion that was on its way
        told: list[int] = []
        found = embed_to_file(EMBED, TEXTS, path, OPTIONS, resume=True, progress=told.append)
        assert found == VectorFile(61, 0)
        assert told[0] == 7 * text_batches
        assert path.read_bytes() == whole.read_bytes()
    assert len(beside(whole)) == 10  # nothing else is left


def test_stopped_between_its_last_two_deeds_it_is_finished(tmp_path: Path) -> None:
    path, journal = tmp_path / "a.npy", tmp_path / "a.npy.journal"
    stop(path, 8)
    facts = json.loads(journal.read_text())
    embed_to_file(EMBED, TEXTS, path, OPTIONS, resume=True)
    whole = path.read_bytes()
    from qkv.engine.embed.vector_files import Fingerprint

    hashed = Fingerprint()
    hashed.add(TEXTS)
    facts |= {"rows": 61, "texts": str(hashed), "finished": True}
    journal.write_text(json.dumps(facts))
    assert embed_to_file(EMBED, TEXTS, path, OPTIONS, resume=True) == VectorFile(61, 0)
    assert path.read_bytes() == whole
    assert beside(path) == ["a.npy"]


def test_where_long_texts_were_an_error_another_way_can_be_chosen(tmp_path: Path) -> None:
    texts, path, whole = [*TEXTS, LONG], tmp_path / "a.npy", tmp_path / "whole.npy"
    with pytest.raises(DataError, match="text 62 has"):
        embed_to_file(EMBED, texts, path, OPTIONS)
    other = Embedder(EMBED.model, EMBED.tokenizer, long="average")
    options = {**OPTIONS, "long": "average"}
    assert embed_to_file(other, texts, path, options, resume=True) == VectorFile(62, 1)
    assert embed_to_file(other, texts, whole, options) == VectorFile(62, 1)
    assert path.read_bytes() == whole.read_bytes()


REFUSED = {
    "model": ({"options": {**OPTIONS, "model": "xyz"}}, "begun with model abc, not xyz"),
    "raw": ({"options": {**OPTIONS, "raw": True}}, "begun with raw False, not True"),
    "another option": ({"options": {**OPTIONS, "int8": True}}, "int8 None, not True"),
    "other texts": ({"texts": ["x", *TEXTS[1:]]}, "the first 21 texts are not those"),
    "the same letters": ({"texts": [TEXTS[0] + TEXTS[1], "", *TEXTS[2:]]}, "first 21 texts"),
    "fewer texts": ({"texts": TEXTS[:20]}, "the first 21 texts are not those"),
    "nothing said": ({"resume": False}, "is unfinished; pass resume=True"),
    "both": ({"force": True}, "resume=True and force=True exclude each other"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_it_does_not_go_on_with_something_else(tmp_path: Path, case: str) -> None:
    path = tmp_path / "a.npy"
    stop(path, 3)
    changes, said = REFUSED[case]
    kept = (tmp_path / "a.npy.part").read_bytes()
    wanted = {"texts": TEXTS, "options": OPTIONS, "resume": True, **changes}
    with pytest.raises((DataError, UsageError), match=said):
        embed_to_file(EMBED, wanted.pop("texts"), path, wanted.pop("options"), **wanted)
    assert (tmp_path / "a.npy.part").read_bytes() == kept
    embed_to_file(EMBED, TEXTS, path, OPTIONS, resume=True)


def test_what_is_damaged_is_named_and_can_be_begun_again(tmp_path: Path) -> None:
    path, part, journal = (tmp_path / f"a.npy{end}" for end in ("", ".part", ".journal"))
    stop(path, 3)
    part.write_bytes(part.read_bytes()[:-5])
    with pytest.raises(DataError, match=r"a\.npy\.part has .* bytes but its journal records"):
        embed_to_file(EMBED, TEXTS, path, OPTIONS, resume=True)
    facts = json.loads(journal.read_text())
    part.unlink()
    with pytest.raises(DataError, match=r"a\.npy\.part is missing"):
        embed_to_file(EMBED, TEXTS, path, OPTIONS, resume=True)
    for damage in ({"rows": 3}, {**facts, "rows": "21"}, {**facts, "long": -1}):
        journal.write_text(json.dumps(damage))
        with pytest.raises(DataError, match=r"a\.npy\.journal is damaged"):
            embed_to_file(EMBED, TEXTS, path, OPTIONS, resume=True)
    assert embed_to_file(EMBED, TEXTS[:5], path, OPTIONS, force=True) == VectorFile(5, 0)
    assert beside(path) == ["a.npy"]


def test_nothing_is_replaced_unasked(tmp_path: Path) -> None:
    path = tmp_path / "a.npy"
    embed_to_file(EMBED, TEXTS, path, OPTIONS)
    for resume in (False, True):
        with pytest.raises(UsageError, match="exists; pass force=True to overwrite it"):
            embed_to_file(EMBED, TEXTS[:3], path, OPTIONS, resume=resume)
    embed_to_file(EMBED, TEXTS[:3], path, OPTIONS, force=True)
    assert len(np.load(path)) == 3


def test_places_that_cannot_be_written_are_refused_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(texts: Sequence[str], first: int) -> Embeddings:
        raise AssertionError("nothing should be computed")

    with pytest.raises(UsageError, match=r"must end in \.npy or \.parquet"):
        embed_to_file(never, TEXTS, tmp_path / "a.txt", OPTIONS)
    with pytest.raises(DataError, match="there is no folder"):
        embed_to_file(never, TEXTS, tmp_path / "no" / "a.npy", OPTIONS)
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    with pytest.raises(DataError, match=r"needs pyarrow; install it with: pip"):
        embed_to_file(never, TEXTS, tmp_path / "a.parquet", OPTIONS)
    assert not any(tmp_path.iterdir())


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_a_full_disk_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "a.npy.part").symlink_to("/dev/full")
    with pytest.raises(DataError, match=r"cannot write .*a\.npy: No space left on device"):
        embed_to_file(EMBED, TEXTS, tmp_path / "a.npy", OPTIONS)


def ran(script: str, *arguments: object) -> dict[str, Any]:
    command = [sys.executable, "-m", f"tests.engine.embed.{script}", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.slow
def test_memory_does_not_grow_with_the_number_of_texts(tmp_path: Path) -> None:
    """100,000 vectors of 84 numbers are 34 MB; next to nothing of it stays in memory."""
    pytest.importorskip("pyarrow", reason="pyarrow is an extra")
    found = ran("stream_many", tmp_path)
    assert [found[name]["rows"] for name in ("a.npy", "a.parquet")] == [100_000, 40_000]
    for name, facts in found.items():
        assert facts["bytes"] > 13_000_000, name
        assert facts["grown"] < 8_000_000, name


@pytest.mark.slow
def test_the_program_killed_again_and_again_ends_with_the_same_bytes(tmp_path: Path) -> None:
    found = ran("killed_embeds", tmp_path)
    assert found["kills"] == 5
    assert any(0 < rows < found["texts"] for rows in found["rows"])
    assert found["different"] == 0
    assert found["left"] == []
