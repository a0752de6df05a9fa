"""The files of a report: one page that needs nothing, runs nothing, and shows every text as is."""

import random
import re
from dataclasses import replace
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

import pytest

from qkv.errors import UsageError
from qkv.metrics import score_labels
from qkv.report import Table, TrainingReport, write_report

HOSTILE = "<script>alert('1')</script> & \"co\" </td></table><img src=x onerror=alert(2)>"
LINES = [
    *(
        {"step": step, "loss": 3 / step, "lr_scale": 1 / step, "finite": True}
        for step in range(1, 60)
    ),
    {"step": 20, "validation": {"loss": 0.5, "accuracy": 0.6}, "best": True},
    {"step": 40, "validation": {"loss": 0.4, "accuracy": 0.9}, "best": True},
]
STORY = TrainingReport(
    title="A sentiment classifier",
    job="classify",
    metric="accuracy",
    higher_is_better=True,
    log=LINES,
    data=[("training texts", "6,920")],
    remarks=["12 texts were cut to 256 tokens"],
    scores={"loss": 0.4, "accuracy": 0.9},
    baseline=("bag of words", {"accuracy": 0.81}),
    labels=("bad", "good"),
    confusion=((3, 1), (0, 6)),
    samples=[Table("Wrong ones", ("true", "given", "text"), (("bad", "good", "so so"),))],
    usage=['qkv classify runs/reviews "what a film"'],
    recipe="steps = 60\n",
)
VOID = {"meta", "wbr"}


class Page(HTMLParser):
    """The tags, attributes, tables and text of a page; every tag must be closed in order."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.attributes, self.open = [], [], []
        self.rows, self.text = [], ""
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        self.handle_endtag(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data
        if self.open and self.open[-1] in ("td", "th"):
            self.rows[-1][-1] += data


def _page(story, folder):
    write_report(story, folder)
    return Page((folder / "report.html").read_text("utf-8"))


def test_the_report_is_three_files(tmp_path: Path) -> None:
    write_report(STORY, tmp_path / "new" / "run")
    folder = tmp_path / "new" / "run"
    assert {file.name for file in folder.iterdir()} == {"curves.svg", "curves.png", "report.html"}
    assert (folder / "curves.png").read_bytes().startswith(b"\x89PNG")
    assert ElementTree.parse(folder / "curves.svg").getroot().tag.endswith("svg")


def test_the_same_story_gives_the_same_bytes(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_report(STORY, tmp_path / name)
    for file in ("curves.svg", "curves.png", "report.html"):
        assert (tmp_path / "a" / file).read_bytes() == (tmp_path / "b" / file).read_bytes()


def test_the_page_tells_everything_in_the_story(tmp_path: Path) -> None:
    page = _page(STORY, tmp_path)
    for said in (
        "The model beats its baseline by 0.090.",
        "12 texts were cut to 256 tokens",
        'qkv classify runs/reviews "what a film"',
        "steps = 60",
        "The best validation accuracy, 0.900, came at step 40.",
        "1 of 10 validation texts got a wrong label.",
    ):
        assert said in page.text
    for row in (
        ["score", "model", "baseline"],
        ["accuracy (selects the best weights)", "0.900", "0.810"],
        ["loss", "0.400", "–"],
        ["bad", "3", "1"],
        ["bad", "4", "0.750", "1.000"],
        ["bad", "good", "so so"],
        ["training texts", "6,920"],
    ):
        assert row in page.rows


def test_the_page_needs_no_network_and_no_script(tmp_path: Path) -> None:
    page = _page(STORY, tmp_path)
    assert not {"script", "link", "img", "iframe", "object"} & set(page.tags)
    for _, attributes in page.attributes:
        assert "src" not in attributes
        assert not any(name.startswith("on") for name in attributes)
        assert attributes.get("xlink:href", "#").startswith("#")
        assert "href" not in attributes
    source = (tmp_path / "report.html").read_text("utf-8")
    assert "@import" not in source
    assert set(re.findall(r"url\((.)", source)) <= {"#"}
    assert "default-src 'none'" in source


def test_hostile_text_stays_text_wherever_it_stands(tmp_path: Path) -> None:
    story = TrainingReport(
        title=HOSTILE,
        job=HOSTILE,
        metric="accuracy",
        higher_is_better=True,
        log=LINES,
        data=[(HOSTILE, HOSTILE)],
        remarks=[HOSTILE],
        scores={"accuracy": 0.5, HOSTILE: 1.0},
        baseline=(HOSTILE, {"accuracy": 0.4}),
        labels=(HOSTILE, "&amp;"),
        confusion=((1, 2), (3, 4)),
        samples=[Table(HOSTILE, (HOSTILE,), ((HOSTILE,),))],
        usage=[HOSTILE],
        recipe=HOSTILE,
    )
    for each in (story, _many_labels(HOSTILE)):
        page = _page(each, tmp_path)
        assert "script" not in page.tags
        assert "img" not in page.tags
        assert HOSTILE in page.text
    page = _page(story, tmp_path)
    assert page.text.count(HOSTILE) >= 14
    assert "&amp;" in page.text


def test_text_that_html_cannot_hold_is_shown_by_signs(tmp_path: Path) -> None:
    table = Table("Generated", ("text",), (("a\0b\x1b[0m\ud800 é\nnext",),))
    page = _page(replace(STORY, samples=[table]), tmp_path)
    assert ["a␀b␛[0m\\ud800 é\nnext"] in page.rows


def test_headings_go_down_one_level_at_a_time(tmp_path: Path) -> None:
    levels = [int(tag[1]) for tag in _page(STORY, tmp_path).tags if re.fullmatch("h[1-6]", tag)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(later <= earlier + 1 for earlier, later in pairwise(levels))


def test_every_table_heading_has_a_scope_and_the_picture_its_words(tmp_path: Path) -> None:
    page = _page(STORY, tmp_path)
    assert all("scope" in found for tag, found in page.attributes if tag == "th")
    assert page.tags.count("caption") == page.tags.count("table")
    (picture,) = [found for tag, found in page.attributes if tag == "svg"]
    (words,) = [found for tag, found in page.attributes if tag == "figcaption"]
    assert picture["role"] == "img"
    assert picture["aria-labelledby"] == words["id"]


def test_the_picture_in_the_page_follows_light_and_dark(tmp_path: Path) -> None:
    write_report(STORY, tmp_path)
    source = (tmp_path / "report.html").read_text("utf-8")
    picture = source[source.index("<svg") : source.index("</svg>")]
    assert "var(--ink)" in picture
    assert set(re.findall(r"#[0-9a-f]{6}\b", picture)) == set()
    assert "prefers-color-scheme: dark" in source


def _many_labels(first="label 0", count=77):
    chance = random.Random(1)
    labels = (first, *(f"label {number}" for number in range(1, count)))
    confusion = [[40 * (i == j) for j in range(count)] for i in range(count)]
    confusion[0][5] = 23
    for _ in range(300):
        confusion[chance.randrange(count)][chance.randrange(count)] += 1
    return replace(STORY, labels=labels, confusion=confusion)


def test_many_labels_show_the_most_confused_pairs_instead_of_a_matrix(tmp_path: Path) -> None:
    page = _page(_many_labels(), tmp_path)
    assert max(len(row) for row in page.rows) < 10
    pairs = [row for row in page.rows if len(row) == 4 and row[1].startswith("label")]
    assert len(pairs) == 20
    assert pairs[0][:2] == ["label 0", "label 5"]
    counts = [int(row[2]) for row in pairs]
    assert counts == sorted(counts, reverse=True)
    assert "The other 62 labels" in page.text


def test_labels_without_mistakes_say_so(tmp_path: Path) -> None:
    page = _page(replace(STORY, confusion=((4, 0), (0, 6))), tmp_path)
    assert "All 10 validation texts got their right label." in page.text


def test_a_label_that_never_occurs_has_no_share(tmp_path: Path) -> None:
    page = _page(replace(STORY, confusion=((0, 0), (0, 6))), tmp_path)
    assert ["bad", "0", "–", "–"] in page.rows


def test_the_shares_are_the_measured_recall_and_precision(tmp_path: Path) -> None:
    chance = random.Random(3)
    labels = ("a", "b", "c")
    truth, guess = (chance.choices(labels, k=101) for _ in range(2))
    scores = score_labels(truth, guess, labels)
    page = _page(replace(STORY, labels=labels, confusion=scores.confusion), tmp_path)
    for label, found in scores.per_label.items():
        row = [label, str(found.count), f"{found.recall:.3f}", f"{found.precision:.3f}"]
        assert row in page.rows


def test_the_barest_story_is_a_page(tmp_path: Path) -> None:
    page = _page(TrainingReport("bare", "language", "loss", False, [], [], [], {}, None), tmp_path)
    assert "No training steps were logged." in page.text
    assert "table" not in page.tags


def test_a_matrix_of_another_size_is_refused() -> None:
    with pytest.raises(ValueError, match="a confusion matrix of 2 labels"):
        replace(STORY, confusion=((1, 2, 3), (1, 2, 3)))
    with pytest.raises(ValueError, match='"t" has 2 columns, not 1'):
        Table("t", ("a", "b"), (("only",),))


def test_a_place_that_cannot_be_written_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(UsageError, match=r"cannot write .*file"):
        write_report(STORY, tmp_path / "file")


def test_accuracy_comes_first_with_its_interval_and_the_optimism_of_the_split(
    tmp_path: Path,
) -> None:
    report = replace(
        STORY,
        metric="macro_f1",
        scores={"macro_f1": 0.7, "accuracy": 0.9},
        intervals={"accuracy": (0.85, 0.94)},
    )
    write_report(report, tmp_path)
    page = Page((tmp_path / "report.html").read_text("utf-8"))
    scores = [
        row
        for row in page.rows
        if row and row[0] in ("accuracy", "macro F1 (selects the best weights)")
    ]
    assert scores[0] == ["accuracy", "0.900", "0.850 to 0.940", "0.810"]
    assert scores[1][0] == "macro F1 (selects the best weights)"
    assert "evaluated the validation split 2 times" in page.text
    assert page.text.index("What to do next") < page.text.index("Labels and mistakes")


def test_a_label_is_never_broken_inside_a_word(tmp_path: Path) -> None:
    labels = ("card_payment_wrong_exchange_rate", "lost", "activate_my_card")
    mistake = ("why", labels[0], "activate_my_card")
    report = replace(
        STORY,
        labels=labels,
        confusion=((3, 1, 0), (0, 6, 1), (0, 0, 2)),
        samples=[Table("Mistakes", ("text", "label", "prediction"), (mistake,))],
    )
    write_report(report, tmp_path)
    html = (tmp_path / "report.html").read_text("utf-8")
    assert '<table class="matrix upright">' in html
    assert "<span>card_payment_wrong_exchange_rate</span>" in html
    assert '<td dir="auto" class="label">activate_my_card</td>' in html
    assert '<td dir="auto">card_<wbr>payment_<wbr>wrong_<wbr>exchange_<wbr>rate</td>' in html
    assert 'class="breakable"' not in html


def test_an_address_in_a_text_may_be_broken(tmp_path: Path) -> None:
    text = f"see https://{'a' * 90}.org"
    report = replace(STORY, samples=[Table("Texts", ("text",), ((text,),))])
    write_report(report, tmp_path)
    assert '<td dir="auto" class="breakable">see' in (tmp_path / "report.html").read_text("utf-8")
