"""What is written of a clustering: a table that reads back, and a page in which no text can act."""

import csv
import re
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from tests.engine.cluster.planted import planted

from qkv.engine.cluster import Clustering, cluster, write_clustering
from qkv.errors import UsageError

HOSTILE = "<script>alert('1')</script> & \"co\" </title></svg></td><img src=x onerror=alert(2)>"
ODD = [HOSTILE, 'a "quoted", text', "two\nlines", "carriage\rreturn", " spaces ", "=1+1", "漢字"]
VOID = {"meta", "wbr"}


class Page(HTMLParser):
    """The tags and attributes of a page; every tag must be closed in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.titles: list[str] = []
        self.curve: list[str | None] = []
        self.text = ""
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes.append((tag, dict(attrs)))
        if tag == "polyline":
            self.curve.append(dict(attrs)["points"])
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data
        if self.open and self.open[-1] == "title":
            self.titles.append(data)


def odd_clustering() -> tuple[Clustering, np.ndarray]:
    texts, vectors, _ = planted(groups=3, each=11)
    texts[: len(ODD)] = ODD
    return cluster(texts, vectors, k=3), vectors


def test_the_table_reads_back_as_it_was(tmp_path: Path) -> None:
    clustering, vectors = odd_clustering()
    write_clustering(clustering, vectors, [tmp_path / "c.csv"])
    with (tmp_path / "c.csv").open(newline="", encoding="utf-8") as file:
        head, *rows = csv.reader(file)
    assert head == ["text", "cluster", "distance", "name"]
    assert [row[0] for row in rows] == list(clustering.texts)
    assert [int(row[1]) for row in rows] == clustering.labels.tolist()
    assert [float(row[2]) for row in rows] == pytest.approx(clustering.distances, abs=1e-6)
    assert [row[3] for row in rows] == [clustering.name_of(label) for label in clustering.labels]


def test_the_page_needs_no_network_no_script_and_escapes_every_text(tmp_path: Path) -> None:
    clustering, vectors = odd_clustering()
    write_clustering(clustering, vectors, [tmp_path / "r.html"], title=HOSTILE)
    source = (tmp_path / "r.html").read_text("utf-8")
    page = Page(source)
    assert not {"script", "img", "link", "iframe", "object"} & set(page.tags)
    assert not any(
        name in attributes for _, attributes in page.attributes for name in ("src", "href")
    )
    assert "http:" not in source.replace("http-equiv", "")
    assert "https:" not in source
    assert any(HOSTILE in title for title in page.titles[1:])
    assert HOSTILE in page.text


def test_the_map_has_a_sign_with_its_words_for_each_text_and_follows_light_and_dark(
    tmp_path: Path,
) -> None:
    clustering, vectors = odd_clustering()
    write_clustering(clustering, vectors, [tmp_path / "r.html"])
    source = (tmp_path / "r.html").read_text("utf-8")
    svg = source[source.index("<svg") : source.index("</svg>")]
    assert svg.count("<title>") == len(clustering.texts)
    assert "var(--ink)" in svg
    assert "prefers-color-scheme: dark" in source
    positions = [float(x) for x in re.findall(r'cx="([\d.-]+)"', svg)]
    assert all(0 <= x <= 720 for x in positions)
    assert len(set(positions)) > 20


def test_the_page_tells_sizes_names_medoids_and_how_it_was_done(tmp_path: Path) -> None:
    texts, vectors, _ = planted(groups=3, each=17)
    clustering = cluster(texts, vectors)
    write_clustering(clustering, vectors, [tmp_path / "r.html"])
    page = Page((tmp_path / "r.html").read_text("utf-8"))
    for each in clustering.clusters:
        assert each.name in page.text
        assert each.medoid in page.text
    assert "51 texts in 3 clusters" in page.text
    assert "Stability: two samples of the texts agree on 3 clusters by 1.00" in page.text
    assert len(page.curve) == 1
    for candidate in clustering.candidates:
        assert f"{candidate.difference:.3f}" in page.text


def test_the_legend_has_one_line_for_each_cluster_next_to_the_map(tmp_path: Path) -> None:
    texts, vectors, _ = planted(groups=5, each=13)
    clustering = cluster(texts, vectors, k=5)
    write_clustering(clustering, vectors, [tmp_path / "r.html"])
    source = (tmp_path / "r.html").read_text("utf-8")
    start = source.index('<ul class="legend">')
    legend = source[start : source.index("</ul>", start)]
    assert legend.count("<li>") == 5
    for each in clustering.clusters:
        assert f"<b>{each.id}</b>" in legend
        assert each.name in legend
    # Typical texts open on a click, so that a cluster takes one line.
    assert Page(source).tags.count("details") == 5
    assert "selection" not in source[start:]  # k was set


def test_the_same_clusters_give_the_same_bytes(tmp_path: Path) -> None:
    clustering, vectors = odd_clustering()
    for name in ("a.html", "b.html"):
        write_clustering(clustering, vectors, [tmp_path / name])
    assert (tmp_path / "a.html").read_bytes() == (tmp_path / "b.html").read_bytes()


def test_of_many_texts_a_sample_is_on_the_map_with_every_medoid(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("qkv.engine.cluster.cluster_page.MAX_POINTS", 13)
    texts, vectors, _ = planted(groups=3, each=31)
    clustering = cluster(texts, vectors, k=3)
    write_clustering(clustering, vectors, [tmp_path / "r.html"])
    page = Page((tmp_path / "r.html").read_text("utf-8"))
    assert 13 <= len(page.titles) - 1 <= 16
    for each in clustering.clusters:
        assert any(title.startswith(each.medoid) for title in page.titles)
    assert f"{len(page.titles) - 1} of 93 texts" in page.text


@pytest.mark.parametrize("count", [1, 2, 5])
def test_a_few_texts_make_a_page_too(tmp_path: Path, count: int) -> None:
    clustering = cluster([f"text {i}" for i in range(count)], np.eye(count, 1 + count))
    write_clustering(clustering, np.eye(count, 1 + count), [tmp_path / "r.html"])
    assert len(Page((tmp_path / "r.html").read_text("utf-8")).titles) == 1 + count


def test_every_cluster_looks_different_up_to_the_number_of_signs() -> None:
    from qkv.engine.cluster.cluster_page import COLOURS, SHAPES, _colour, _point

    looks = {(_colour(i), _point(i, 9, 9, "")) for i in range(len(COLOURS) * len(SHAPES))}
    assert len(looks) == len(COLOURS) * len(SHAPES)


def test_a_place_that_cannot_be_written_is_refused_and_nothing_is_left(tmp_path: Path) -> None:
    clustering, vectors = odd_clustering()
    (tmp_path / "folder.csv").mkdir()
    for path, message in (
        (tmp_path / "r.pdf", r"must end in .html or .csv"),
        (tmp_path / "nowhere" / "r.csv", "there is no folder"),
        (tmp_path / "folder.csv", "is a folder"),
    ):
        with pytest.raises(UsageError, match=message):
            write_clustering(clustering, vectors, [tmp_path / "good.csv", path])
    assert [path.name for path in tmp_path.iterdir()] == ["folder.csv"]


def test_an_old_file_is_replaced_whole_and_no_part_stays_beside_it(tmp_path: Path) -> None:
    clustering, vectors = odd_clustering()
    (tmp_path / "c.csv").write_text("old")
    write_clustering(clustering, vectors, [tmp_path / "c.csv"])
    assert (tmp_path / "c.csv").read_text("utf-8").startswith('"text","cluster"')
    assert [path.name for path in tmp_path.iterdir()] == ["c.csv"]
