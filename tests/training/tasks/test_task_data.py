"""What is said of people's examples: leaks, texts cut short, and everything that cannot be used."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.training.tiny_runs import (
    args_for,
    data_for,
    labelled,
    pairs,
    sentences,
    trained,
    written,
)

from qkv.bundle import Bundle
from qkv.errors import QkvError
from qkv.training.prepare import prepare
from qkv.training.tasks import DataConfig, find_task


def remarks(job: str, data: DataConfig, **changes: Any) -> list[str]:
    return prepare(args_for(job, data, **changes)).data_module.remarks


def columns(path: Path, *rows: str, title: str = "text,label") -> DataConfig:
    return written(path, "\n".join([title, *rows, ""]))


def test_held_out_texts_that_training_has_seen_are_told(tmp_path: Path) -> None:
    seen = [f"{text},{label}" for text, label in zip(sentences(6), "ababab", strict=True)]
    new = ["nobody has read this,a", "nor that,b"]
    for job, title in (("classify", "text,label"), ("translate", "source,target")):
        data = columns(tmp_path / "train.csv", *seen, title=title)
        more = columns(tmp_path / "more.csv", *seen[:2], *new, title=title).files
        (said,) = remarks(job, data.model_copy(update={"validation": more}))
        assert said.startswith("2 of 4 validation texts are also in the training split")
        assert sentences(6)[0][:20] in said


def test_texts_that_are_cut_short_are_counted(tmp_path: Path) -> None:
    long = " ".join(["word"] * 40)
    rows = [f"{text} {i},{'ab'[i % 2]}" for i, text in enumerate(sentences(20))]
    data = columns(tmp_path / "train.csv", f"{long},a", f"{long} more,b", *rows)
    more = columns(tmp_path / "more.csv", "unseen text,a", "and another,b").files
    data = data.model_copy(update={"validation": more})
    (said,) = remarks("classify", data, context_length=24)
    assert said == "2 of 22 training texts have more than 24 tokens; only their beginnings are read"
    (said,) = remarks(
        "embed", data.model_copy(update={"text": "text", "label": "label"}), context_length=24
    )
    assert said.startswith("2 of 22 training texts have more than 24 tokens")


def test_pairs_that_are_too_long_are_left_out_and_counted(tmp_path: Path) -> None:
    long = " ".join(["word"] * 40)
    path = tmp_path / "pairs.csv"
    path.write_text(pairs(20) + f"short,{long}\n{long} ,short\n")
    more = written(tmp_path / "more.csv", "source,target\nunseen,nesnu\n").files
    data = DataConfig(files=(str(path),), validation=more)
    prepared = prepare(args_for("translate", data, vocab_size=400, context_length=30))
    (said,) = prepared.data_module.remarks
    assert said == (
        "2 of 22 training pairs have a side of more than 30 tokens, special tokens included, "
        "and are left out"
    )
    read = sorted(int(i) for batch in prepared.data_module.batch_indices(0) for i in batch)
    assert read == list(range(20))


def test_if_no_pair_is_short_enough_that_is_said(tmp_path: Path) -> None:
    data = written(tmp_path / "pairs.csv", pairs(20))
    with pytest.raises(QkvError, match="no training pair fits into 2 tokens; raise"):
        prepare(args_for("translate", data, context_length=2))


def test_pairs_can_be_learnt_both_ways(tmp_path: Path) -> None:
    data = written(tmp_path / "pairs.csv", pairs(20)).model_copy(update={"bidirectional": True})
    one_way = data.model_copy(update={"bidirectional": False})
    job = find_task("translate")
    both, plain = job.load(data, 5), job.load(one_way, 5)
    for part in ("train", "validation"):
        turned = [(p.target, p.source) for p in getattr(plain, part)]
        found = [(p.source, p.target) for p in getattr(both, part)]
        assert found[1::2] == turned
        assert found[::2] == [(p.source, p.target) for p in getattr(plain, part)]
    assert both.sha256 != plain.sha256  # so that neither reads what was kept of the other
    recipe = prepare(
        args_for("translate", one_way, settings={"data": {"bidirectional": True}})
    ).recipe
    assert recipe.data == data.model_copy(update={"sha256": both.sha256})


def test_only_translators_learn_both_ways(tmp_path: Path) -> None:
    both = data_for("classify", tmp_path).model_copy(update={"bidirectional": True})
    with pytest.raises(QkvError, match=r"data\.bidirectional is for translate, not for classify"):
        prepare(args_for("classify", both))


def test_clean_data_gets_no_remark(tmp_path: Path) -> None:
    rows = [f"text number {i} of many,{'ab'[i % 2]}" for i in range(30)]
    assert remarks("classify", columns(tmp_path / "clean.csv", *rows)) == []


MISTAKES: dict[str, tuple[str, str, dict[str, str], str]] = {
    "one class": ("classify", "text,label\none,a\ntwo,a\n", {}, 'every row has the label "a"'),
    "an empty file": ("classify", "", {}, "is empty; it holds no rows"),
    "only a header": ("classify", "text,label\n", {}, "is empty; it holds no rows"),
    "an empty label": ("classify", "text,label\none,a\ntwo,\n", {}, "line 3: label is empty"),
    "an unknown column": (
        "classify",
        "text,label\none,a\ntwo,b\n",
        {"label": "lable"},
        'unknown column "lable"; did you mean "label"?',
    ),
    "a column too many": (
        "classify",
        "text,label\none,a\ntwo,b\n",
        {"text": "3", "label": "2"},
        "there is no column 3 for the text",
    ),
    "three columns": ("classify", "x,y,z\none,two,a\n", {}, "which column holds the text?"),
    "single texts": (
        "classify",
        "text,label\none,a\ntwo,b\n",
        {},
        "every label has a single text; nothing can be split off for validation",
    ),
    "a role of another job": (
        "classify",
        "text,label\none,a\ntwo,b\n",
        {"source": "text"},
        "source='text' is not for classify; it reads text and label",
    ),
    "a score for pairs": (
        "translate",
        "source,target\none,a\ntwo,b\n",
        {"score": "2"},
        "score='2' is not for translate; it reads source and target",
    ),
    "an unknown source": (
        "translate",
        "source,target\none,a\ntwo,b\n",
        {"source": "sorce", "target": "target"},
        'unknown column "sorce"; did you mean "source"?',
    ),
    "a pair alone": ("translate", "source,target\none,a\n", {}, "cannot split 1 example into"),
    "labels of their own": (
        "embed",
        "text,label\none,a\ntwo,b\nthree,c\nfour,d\n",
        {"text": "text", "label": "label"},
        "every text has a label of its own",
    ),
    "equal scores": (
        "embed",
        "a,b,score\none,two,3\nthree,four,3\nfive,six,3\n",
        {"score": "score"},
        "every pair has the score 3",
    ),
    "columns that could be anything": (
        "embed",
        "one,two\nthree,four\nfive,two\n",
        {},
        "text= and label=, or source= and target=",
    ),
    "no text at all": ("language", "  \n\n", {}, "is empty; it holds no text"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_data_that_cannot_be_used_is_one_clear_line(mistake: str, tmp_path: Path) -> None:
    job, content, roles, answer = MISTAKES[mistake]
    path = tmp_path / ("text.txt" if job == "language" else "rows.csv")
    with pytest.raises(QkvError) as caught:
        prepare(args_for(job, written(path, content, **roles)))
    assert answer in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_label_that_only_validation_has_is_refused(tmp_path: Path) -> None:
    data = written(tmp_path / "train.csv", labelled(20))
    more = written(tmp_path / "more.csv", labelled(6, "axy")).files
    with pytest.raises(QkvError, match='the validation label "x" is not among the training labels'):
        prepare(args_for("classify", data.model_copy(update={"validation": more})))


def test_parallel_files_are_validated_with_two_more(tmp_path: Path) -> None:
    sides = {}
    for name in ("a.en", "a.de", "b.en", "b.de"):
        sides[name] = str(tmp_path / name)
        Path(sides[name]).write_text("\n".join(sentences(12, seed=len(sides))) + "\n")
    data = DataConfig(source=sides["a.en"], target=sides["a.de"], validation=(sides["b.en"],))
    with pytest.raises(QkvError, match="pass a source and a target as validation=, not 1 files"):
        prepare(args_for("translate", data))
    both = data.model_copy(update={"validation": (sides["b.en"], sides["b.de"])})
    for job in ("translate", "embed"):
        facts = dict(prepare(args_for(job, both)).data_module.facts)
        assert (facts["training examples"], facts["validation examples"]) == ("12", "12")


def test_a_label_the_model_does_not_know_is_named_when_it_is_measured(tmp_path: Path) -> None:
    place = trained(tmp_path / "run", args_for("classify", data_for("classify", tmp_path), 1))
    other = written(tmp_path / "other.csv", labelled(6, "az"))
    with pytest.raises(QkvError, match='the label "z" is none of the model\'s: a, b'):
        find_task("classify").evaluate(Bundle.load(place), other, None)


def test_a_classifier_is_measured_without_its_training_data(tmp_path: Path) -> None:
    """With it, there is a baseline; where the files are gone or changed, there is none."""
    data = data_for("classify", tmp_path)
    args = args_for("classify", data, 1)
    place, recipe = trained(tmp_path / "run", args), prepare(args).recipe
    test = written(tmp_path / "test.csv", labelled(8, seed=3))
    job, bundle = find_task("classify"), Bundle.load(place)
    assert job.evaluate(bundle, test, recipe).baseline.keys() == {"accuracy", "macro_f1"}
    (path,) = data.files
    Path(path).write_text(labelled(40, seed=4))
    assert job.evaluate(bundle, test, recipe).baseline == {}
    Path(path).unlink()
    judged = job.evaluate(bundle, test, recipe)
    assert judged.baseline == {}
    assert judged.examples == 8


EMBEDDED = {
    "labels": ("text,label", [f"{text},{'abc'[i % 3]}" for i, text in enumerate(sentences(30))]),
    "pairs": ("source,target", [f"{text},{text} again" for text in sentences(30)]),
    "pairs, some of equals": ("source,target", [f"{t},{t}" for t in sentences(29)] + ["one,two"]),
    "scores": (
        "sentence1,sentence2,score",
        [f"{text},{text[::-1]},{i % 5}" for i, text in enumerate(sentences(40))],
    ),
}
ROLES = {
    "labels": {"text": "text", "label": "label"},
    "pairs": {"source": "source", "target": "target"},
    "scores": {"score": "score"},
}
WATCHED = {"labels": "v_measure", "pairs": "retrieval", "scores": "spearman"}


@pytest.mark.parametrize("name", EMBEDDED)
def test_vectors_are_learnt_from_whatever_is_known_of_the_texts(name: str, tmp_path: Path) -> None:
    kind = name.partition(",")[0]
    title, rows = EMBEDDED[name]
    path = tmp_path / "texts.csv"
    data = written(path, "\n".join([title, *rows, ""]), **ROLES[kind])
    args = args_for("embed", data, 3)
    recipe = prepare(args).recipe
    assert recipe.task.supervision == kind  # type: ignore[union-attr]
    place = trained(tmp_path / "run", args)
    last = json.loads((place / "metrics.jsonl").read_text().splitlines()[-1])
    assert WATCHED[kind] in last["summary"]["validation"]
    judged = find_task("embed").evaluate(Bundle.load(place), data, recipe)
    assert WATCHED[kind] in judged.scores
    assert judged.baseline.keys() == judged.scores.keys()
    assert judged.examples == len(rows)


def test_vectors_are_learnt_from_lines_alone_and_measured_with_or_without_pairs(
    tmp_path: Path,
) -> None:
    lines = written(tmp_path / "lines.txt", "\n".join(sentences(40)))
    args = args_for("embed", lines, 3)
    recipe = prepare(args).recipe
    assert recipe.task.supervision == "texts"  # type: ignore[union-attr]
    assert recipe.task.teacher == "lsa"  # type: ignore[union-attr]
    bundle = Bundle.load(trained(tmp_path / "run", args))
    job = find_task("embed")
    result = job.evaluate(bundle, lines, recipe)
    assert set(result.scores) == {"halves", "lsa_neighbours"}
    assert set(result.baseline) == {"halves"}
    known = written(tmp_path / "pairs.csv", pairs(20), source="source", target="target")
    assert "retrieval" in job.evaluate(bundle, known, recipe).scores


def test_with_labels_a_texts_twin_has_its_label_and_is_another_text(tmp_path: Path) -> None:
    data = written(tmp_path / "t.csv", labelled(30, "abc"), text="text", label="label")
    data_module = prepare(args_for("embed", data)).data_module
    labels = data_module.labels  # type: ignore[attr-defined]
    epochs = []
    for epoch in (0, 0, 1):
        rows = {int(a): int(b) for batch in data_module.batch_indices(epoch) for a, b in batch}
        assert len(rows) == len(labels)
        assert all(labels[a] == labels[b] and a != b for a, b in rows.items())
        epochs.append(rows)
    assert epochs[0] == epochs[1] != epochs[2]


def test_scores_of_any_range_are_brought_between_0_and_1(tmp_path: Path) -> None:
    rows = [
        f"{text},{text},{score}" for text, score in zip(sentences(9), [-2, 0, 8] * 3, strict=True)
    ]
    data = columns(tmp_path / "s.csv", *rows, title="a,b,score")
    data_module = prepare(args_for("embed", data.model_copy(update={"score": "score"}))).data_module
    found = set(data_module.scores.round(3).tolist())  # type: ignore[attr-defined]
    assert found == {0.0, 0.2, 1.0}


def test_titles_say_what_two_columns_hold(tmp_path: Path) -> None:
    from qkv.training.tasks.embed import supervision_of

    rows = [f"text {i},other {i % 3}" for i in range(9)]
    assert supervision_of(columns(tmp_path / "a.csv", *rows, title="text,label")) == "labels"
    assert supervision_of(columns(tmp_path / "b.csv", *rows, title="source,target")) == "pairs"
    with pytest.raises(QkvError, match=r"the columns of .*c\.csv could be several things"):
        supervision_of(columns(tmp_path / "c.csv", *rows, title="text 9,other 0"))


def test_texts_that_are_cut_while_measuring_are_counted_too(tmp_path: Path) -> None:
    place = trained(tmp_path / "run", args_for("classify", data_for("classify", tmp_path), 2))
    long = " ".join(["the cat"] * 20)
    data = columns(tmp_path / "test.csv", f"{long},a", "the cat,b")
    judged = find_task("classify").evaluate(Bundle.load(place), data, None)
    assert judged.remarks == (
        "1 of 2 measured texts have more than 16 tokens; only their beginnings are read",
    )


def test_texts_of_a_single_label_can_be_measured(tmp_path: Path) -> None:
    place = trained(tmp_path / "run", args_for("classify", data_for("classify", tmp_path), 2))
    data = columns(tmp_path / "test.csv", "the cat,a", "the dog,a")
    assert find_task("classify").evaluate(Bundle.load(place), data, None).examples == 2
