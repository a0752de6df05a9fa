"""`qkv translate` as a person runs it: lines in, lines out, JSON, streams and mistakes."""

import io
import json
import random
import sys
from collections.abc import Callable
from itertools import groupby
from pathlib import Path

import pytest
import torch

from qkv.bundle import Bundle
from qkv.cli import translate as command
from qkv.engine.translate import translate
from qkv.model import (
    Classify,
    DecoderOnly,
    Embedding,
    EncoderDecoder,
    EncoderOnly,
    MultiHead,
    NextToken,
    ReLU,
    Sinusoidal,
    Stack,
    TextVector,
    Translator,
    build,
)
from qkv.text import Tokenizer

Program = Callable[..., tuple[int, str, str]]

LENGTH = 23
STACK = Stack(
    layers=2,
    width=12,
    attention=MultiHead(heads=3),
    feed_forward=ReLU(width=17),
    position=Sinusoidal(),
)
LETTERS = Tokenizer.train("characters", ["abcdefgh ABC.,é日"], 50)
TABLE = Embedding(vocabulary=LETTERS.vocab_size, scaled=True)


def make_model() -> Translator:
    config = EncoderDecoder(
        length=LENGTH,
        embedding=TABLE,
        encoder=STACK,
        decoder=STACK,
        output=NextToken(tied=False, bias=True),
    )
    model = build(config, seed=5)
    assert isinstance(model, Translator)
    with torch.no_grad():
        model.output.weight.mul_(30.0)
        model.output.bias[LETTERS.eos_id] = 3.0
    return model.eval()


MODEL = make_model()


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("models") / "letters"
    Bundle(MODEL, LETTERS).save(path)
    return path


def expected(*texts: str, **options: int) -> list[str]:
    return [results.text for results in translate(MODEL, LETTERS, texts, **options)]  # type: ignore[arg-type]


def test_one_line_a_text_in_their_order(qkv: Program, bundle: Path) -> None:
    code, out, err = qkv("translate", bundle, "abc", "", "de fg")
    first, last = expected("abc", "de fg")
    assert (code, out, err) == (0, f"{first}\n\n{last}\n", "")


def test_json_has_the_fields_of_the_design(qkv: Program, bundle: Path) -> None:
    code, out, err = qkv("translate", bundle, "abé日", "", "--json", "--beams", 3)
    assert (code, err) == (0, "")
    first, empty = (json.loads(line) for line in out.splitlines())
    assert list(first) == ["source", "text", "score", "stop_reason"]
    assert (first["source"], [first["text"]]) == ("abé日", expected("abé日", beams=3))
    assert first["score"] < 0.0
    assert empty == {"source": "", "text": "", "score": 0.0, "stop_reason": "end"}
    assert "abé日" in out


def test_the_best_are_numbered_for_people(qkv: Program, bundle: Path) -> None:
    code, out, _ = qkv("translate", bundle, "abc", "--best", 3)
    (results,) = translate(MODEL, LETTERS, ["abc"], best=3)
    assert code == 0
    rows = [row.split(maxsplit=2) for row in out.splitlines()]
    assert [row[0] for row in rows] == ["1", "2", "3"]
    assert [float(row[1]) for row in rows] == [round(w.score, 3) for w in results.alternatives]
    for row, hypothesis in zip(out.splitlines(), results.alternatives, strict=True):
        assert row.endswith(f"  {hypothesis.text}")


def test_the_best_are_alternatives_in_json(qkv: Program, bundle: Path) -> None:
    code, out, _ = qkv("translate", bundle, "abc", "--best", 5, "--json")
    fields = json.loads(out)
    assert code == 0
    assert len(fields["alternatives"]) == 5  # more than the usual beams: as many are followed
    assert fields["alternatives"][0] == {k: fields[k] for k in ("text", "score", "stop_reason")}
    scores = [hypothesis["score"] for hypothesis in fields["alternatives"]]
    assert scores == sorted(scores, reverse=True)


def test_options_reach_the_search(qkv: Program, bundle: Path) -> None:
    texts = ["abc", "defgh", "hagfe", "bb"]
    for beams, penalty in ((1, 1.0), (3, 0.0), (3, 2.0)):
        _, out, _ = qkv(
            "translate", bundle, *texts, "--beams", beams, "--length-penalty", penalty, "--json"
        )
        results = translate(MODEL, LETTERS, texts, beams=beams, length_penalty=penalty)
        fields = [json.loads(line) for line in out.splitlines()]
        assert [s["text"] for s in fields] == [f.text for f in results]
        assert [s["score"] for s in fields] == pytest.approx([f.score for f in results], abs=1e-4)


def test_a_file_is_answered_line_by_line(qkv: Program, bundle: Path, tmp_path: Path) -> None:
    """More lines than are answered together at first, blank ones and odd breaks among them."""
    rng = random.Random(0)
    texts = ["".join(rng.choices("abcdefgh", k=rng.randint(0, 9))) for _ in range(61)]
    (tmp_path / "in.txt").write_bytes("\r\n".join(texts).encode())
    code, out, _ = qkv("translate", bundle, "--file", tmp_path / "in.txt", "--beams", 2)
    assert code == 0
    assert out.split("\n") == [*expected(*texts, beams=2), ""]


def test_standard_input_is_answered_while_it_is_read(
    qkv: Program, bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first answers are there before the last text is given."""
    lines_written: list[int] = []
    real = command.typer.echo
    monkeypatch.setattr(command.typer, "echo", lambda line: (lines_written.append(1), real(line)))

    class Lines(io.BytesIO):
        def __next__(self) -> bytes:
            assert self.tell() == 0 or self.tell() < 4 * command.FIRST_BATCH or lines_written
            return super().__next__()

    class Stdin:
        buffer = Lines(b"abc\n" * 97)

        def isatty(self) -> bool:
            return False

    monkeypatch.setattr(sys, "stdin", Stdin())
    code, out, _ = qkv("translate", bundle, "--beams", 1)
    assert (code, out.splitlines()) == (0, expected("abc", beams=1) * 97)


def test_long_work_tells_how_far_it_is(
    qkv: Program, bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "PROGRESS_INTERVAL", 0.0)
    (tmp_path / "in.txt").write_text("ab\n" * 50, "utf-8")
    _, out, err = qkv("translate", bundle, "--file", tmp_path / "in.txt", "--beams", 1)
    counts = [int(line.split()[0]) for line in err.splitlines() if "texts/s" in line]
    assert counts == [16, 48]
    assert len(out.splitlines()) == 50


def test_a_text_too_long_is_one_clear_line(qkv: Program, bundle: Path) -> None:
    code, out, err = qkv("translate", bundle, "abc" * 11)
    assert (code, out) == (2, "")
    assert err.count("\n") == 1
    assert f"has 33 tokens but the model reads at most {LENGTH - 1}" in err
    assert "--long sentences" in err


def test_long_texts_are_cut_at_sentences_and_it_is_said(qkv: Program, bundle: Path) -> None:
    code, out, err = qkv("translate", bundle, "ab", "Abc de. Bcd, ef. Cabc.", "--long", "sentences")
    assert (code, err) == (0, "")  # it fits
    text = "Abc de.  Bcd, ef. Cabc def."
    code, out, err = qkv("translate", bundle, "ab", text, "--long", "sentences")
    a, b, c = expected("Abc de.", "Bcd, ef.", "Cabc def.")
    assert (code, out) == (0, f"{expected('ab')[0]}\n{a}  {b} {c}\n")
    assert err.startswith("note: text 2: “Abc de.")
    assert f"27 tokens but the model reads at most {LENGTH - 1}" in err
    assert "in 3 parts" in err


def test_translations_that_were_stopped_are_counted(
    qkv: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    endless = make_model()
    with torch.no_grad():
        endless.output.bias[LETTERS.eos_id] = -100.0
    Bundle(endless, LETTERS).save(tmp_path / "endless")
    _, _, err = qkv("translate", tmp_path / "endless", "ab", "", "cd")
    assert "2 of 3 translations reached the maximum length" in err


def test_the_alignment_is_a_table_or_json(qkv: Program, bundle: Path) -> None:
    (results,) = translate(MODEL, LETTERS, ["abc de"], alignment=True)
    assert results.alignment
    code, out, _ = qkv("translate", bundle, "abc de", "--alignment")
    head, *rows = out.splitlines()
    assert (code, head) == (0, results.text)
    assert [word for row in rows for word in row.split()] == [
        word
        for target, links in groupby(results.alignment, key=lambda link: link.target)
        for word in (
            target.text,
            *(part for link in links for part in (link.source.text, f"{link.weight:.2f}")),
        )
    ]
    fields = json.loads(qkv("translate", bundle, "abc de", "--alignment", "--json")[1])
    for link in fields["alignment"]:
        assert list(link) == ["source", "target", "weight", "source_span", "target_span"]
        assert fields["source"][slice(*link["source_span"])] == link["source"]
        assert fields["text"][slice(*link["target_span"])] == link["target"]
    assert len(fields["alignment"]) == len(results.alignment)
    other = json.loads(qkv("translate", bundle, "abc de", "--alignment", "--layer", 1, "--json")[1])
    assert other["text"] == fields["text"]
    assert other["alignment"] != fields["alignment"]


OTHER_MODELS = {
    "a decoder, which generates text": (
        DecoderOnly(length=LENGTH, embedding=TABLE, decoder=STACK),
        "qkv generate",
    ),
    "a classifier": (
        EncoderOnly(
            length=LENGTH, embedding=TABLE, encoder=STACK, output=Classify(labels=("a", "b"))
        ),
        "qkv classify",
    ),
    "an encoder that embeds text": (
        EncoderOnly(length=LENGTH, embedding=TABLE, encoder=STACK, output=TextVector()),
        "qkv embed",
    ),
}


@pytest.mark.parametrize("what", OTHER_MODELS)
def test_another_family_is_named_with_the_command_that_suits_it(
    qkv: Program, tmp_path: Path, what: str
) -> None:
    config, command_name = OTHER_MODELS[what]
    Bundle(build(config, seed=1), LETTERS).save(tmp_path / "model")
    code, out, err = qkv("translate", tmp_path / "model", "abc")
    assert (code, out) == (2, "")
    assert err.count("\n") == 1
    assert what in err
    assert command_name in err


MISTAKES = {
    ("abc", "--best", "3", "--beams", "2"): "--best 3 of --beams 2",
    ("abc", "--beams", "0"): "--beams",
    ("abc", "--length-penalty", "-1"): "--length-penalty",
    ("abc", "--long", "cut"): 'unknown value for long "cut"',
    ("abc", "--layer", "1"): "--layer 1 is the layer of the alignment; add --alignment",
    ("abc", "--alignment", "--layer", "2"): "--layer 2 does not exist; the decoder has 0 to 1",
    ("abc", "--file", "x.txt"): "texts as arguments and --file exclude each other",
    ("--file", "nowhere.txt"): "nowhere.txt",
}


@pytest.mark.parametrize("arguments", MISTAKES)
def test_a_mistake_is_one_line(qkv: Program, bundle: Path, arguments: tuple[str, ...]) -> None:
    code, out, err = qkv("translate", bundle, *arguments)
    assert (code, out) == (2, "")
    assert err.count("\n") == 1
    assert MISTAKES[arguments] in err
