"""Every command, used wrongly in the ways people do: the answer is one line that teaches."""

from collections.abc import Callable
from pathlib import Path

import pytest

from qkv.bundle import Bundle
from qkv.cli.app import ClickException, app, usage_error_message
from qkv.model import (
    Classify,
    DecoderOnly,
    Embedding,
    EncoderDecoder,
    EncoderOnly,
    MaskedToken,
    MultiHead,
    ReLU,
    Rope,
    Stack,
    TextVector,
    build,
)
from qkv.text import Tokenizer

Qkv = Callable[..., tuple[int, str, str]]
TOKENIZER = Tokenizer.train("bytes", ["a"], 300)
LONG = "many more letters than thirty-one, which is too long"

FILES: dict[str, bytes] = {
    "good.txt": b"a dog runs\na cat sleeps\nbirds sing\n" * 20,
    "zero.txt": b"",
    "blank.txt": b"\n \n\n",
    "latin.txt": "café\n".encode("latin-1"),
    "wide.txt": "hello\n".encode("utf-16"),
    "paper.txt": b"%PDF-1.7\n\xff\xfe",
    "letter.docx": b"PK\x03\x04\x14\x00",
    "book.txt.gz": b"\x1f\x8b\x08\x00",
    "reviews.csv": b"review,sentiment\nfine film,good\nno film,bad\n",
    "stars.csv": b"id,body,stars\n1,fine,5\n2,no,1\n",
    "same.csv": b"text,label\nfine,good\nso so,good\n",
    "head.csv": b"text,label\n",
    "ragged.csv": b"text,label\nfine,good\nno\n",
    "reviews.xlsx": b"PK\x03\x04",
    "reviews.json": b"[]",
    "half.jsonl": b'{"text": "a", "label": "b"}\n{"text": \n',
    "a.en": b"one\ntwo\n",
    "a.de": b"eins\n",
    "broken.toml": b"steps = ",
    "taken.npy": b"mine",
    "taken.tsv": b"mine",
    "noise.gguf": b"no model",
    "weights/model.safetensors": b"",
    "config/config.json": b'{"model_type": "bert"}',
    "pickle/config.json": b'{"model_type": "bert"}',
    "pickle/pytorch_model.bin": b"",
    "stopped/recipe.toml": b'[task]\nkind = "classify"\n',
}


def save(name: Path, kind: object, **options: object) -> None:
    stack = Stack(
        layers=1,
        width=12,
        attention=MultiHead(heads=3),
        feed_forward=ReLU(width=17),
        position=Rope(),
    )
    table = Embedding(vocabulary=TOKENIZER.vocab_size)
    sides = {
        EncoderOnly: {"encoder": stack},
        DecoderOnly: {"decoder": stack},
        EncoderDecoder: {"encoder": stack, "decoder": stack},
    }
    model = build(kind(length=31, embedding=table, **sides[kind], **options))  # type: ignore
    Bundle(model, None if name.name == "mute" else TOKENIZER).save(name)


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a small model for each job, and with files in every bad state."""
    path = tmp_path_factory.mktemp("desk")
    for name, content in FILES.items():
        (path / name).parent.mkdir(exist_ok=True)
        (path / name).write_bytes(content)
    (path / "hollow").mkdir()
    save(path / "runs/labels", EncoderOnly, output=Classify(labels=("bad", "good")))
    save(path / "runs/vectors", EncoderOnly, output=TextVector())
    save(path / "runs/masked", EncoderOnly, output=MaskedToken())
    save(path / "runs/writer", DecoderOnly)
    save(path / "runs/translator", EncoderDecoder)
    save(path / "runs/mute", DecoderOnly)
    return path


@pytest.fixture(autouse=True)
def in_workspace(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(workspace)


def error_line(output: tuple[int, str, str]) -> str:
    """The one line of an answer that refuses."""
    code, out, err = output
    assert (code, out) == (2, ""), err
    assert err.startswith("qkv: ")
    assert err.count("\n") == 1
    assert "Errno" not in err
    return err


# The place of a model, tried with a command that only opens it, and with all others below.
NO_MODEL = {
    "nowhere": (
        "nowhere is not a directory that exists; give the directory of a model made by qkv train"
    ),
    "runs/label": 'did you mean "runs/labels"?',
    "somebody/some-model": "hf download somebody/some-model --local-dir some-model",
    "good.txt": "good.txt is not a directory but a file; give the directory of a model",
    "noise.gguf": "noise.gguf does not begin like a GGUF file; it is damaged",
    "missing.gguf": "missing.gguf is not a directory that exists",
    "runs/labels/model.safetensors": "but a file of one; give the directory: runs/labels",
    "hollow": "hollow is not a model: it is empty",
    "runs": "runs is not a model but holds some; give runs/labels or 5 others in it",
    "stopped": (
        "stopped is not a model yet: nothing of its training was saved so far; continue it with: "
        "qkv train classify -o stopped --resume"
    ),
    "weights": "it holds weights (model.safetensors) but no config.json",
    "config": "config holds no weights; expected model.safetensors",
    "pickle": "which can run code when loaded; convert it to safetensors",
}


@pytest.mark.parametrize("path", NO_MODEL)
def test_a_place_without_a_model_is_told_for_what_it_is(qkv: Qkv, path: str) -> None:
    assert NO_MODEL[path] in error_line(qkv("inspect", path))


MODEL_COMMANDS = {
    "evaluate": ("good.txt",),
    "generate": ("a",),
    "chat": (),
    "classify": ("a",),
    "translate": ("a",),
    "embed": ("a",),
    "similar": ("a", "b"),
    "cluster": ("good.txt",),
    "export": ("-o", "new"),
    "check": (),
}


@pytest.mark.parametrize("command", MODEL_COMMANDS)
def test_every_command_that_opens_a_model_says_the_same(qkv: Qkv, command: str) -> None:
    message = error_line(qkv(command, "runs/vectrs", *MODEL_COMMANDS[command]))
    assert 'did you mean "runs/vectors"?' in message


# What is asked of a model of another job, and the command that suits it.
OTHER_JOB = {
    ("generate", "runs/labels"): "is a classifier; use qkv classify",
    ("generate", "runs/vectors"): "an encoder that embeds text; use qkv embed",
    ("generate", "runs/masked"): "a masked-language-model encoder; use qkv embed",
    ("generate", "runs/translator"): "use qkv translate",
    (
        "classify",
        "runs/writer",
    ): "a decoder, which generates text, so it gives no labels; use qkv",
    ("classify", "runs/vectors"): "make a classifier with qkv train classify",
    ("classify", "runs/masked"): "so it gives no labels",
    ("classify", "runs/translator"): "use qkv translate",
    ("translate", "runs/labels"): "is a classifier; use qkv classify",
    ("translate", "runs/writer"): "use qkv generate",
    ("translate", "runs/vectors"): "use qkv embed",
    ("embed", "runs/writer"): "so it has no vector for a text; use qkv generate",
    ("embed", "runs/translator"): "use qkv translate",
    ("generate", "runs/mute"): "has no tokenizer, so it cannot read text; put its tokenizer.json",
}


@pytest.mark.parametrize("arguments", OTHER_JOB, ids=" ".join)
def test_a_model_of_another_job_is_sent_to_its_command(
    qkv: Qkv, arguments: tuple[str, str]
) -> None:
    assert OTHER_JOB[arguments] in error_line(qkv(*arguments, "a"))


def test_a_model_without_vectors_makes_no_clusters(qkv: Qkv) -> None:
    assert "use qkv generate" in error_line(qkv("cluster", "runs/writer", "good.txt"))


# Data for training; the words that come before are those of the job.
TRAINING = {
    "language nowhere.txt": "there is no file",
    "language goood.txt": 'good.txt"?',
    "language reviews.txt": 'reviews.csv"?',
    "language nowhere/good.txt": "there is no folder",
    "language hollow": "holds no .txt file; name the files to read",
    "language zero.txt": "zero.txt is empty; it holds no text",
    "language blank.txt": "blank.txt is empty; it holds no text",
    "language latin.txt": "byte 4 of the line, 0xe9, is not UTF-8; save the file as UTF-8",
    "language wide.txt": "this is UTF-16; save the file as UTF-8",
    "language paper.txt": "this is a PDF; save its text as a .txt",
    "language letter.docx": "save a document as .txt, a sheet as .csv",
    "language book.txt.gz": "packed by gzip; unpack it first, with gunzip",
    "language good.txt --label x": "--label is not for language; it reads text",
    "language good.txt --text body": "plain text and has no column body; leave --text body out",
    "language good.txt --size tini": 'did you mean "tiny"?',
    "language good.txt --preset gpt-2": 'did you mean "gpt2"?',
    "language good.txt --tokenizer bpee": 'did you mean "bpe"?',
    "language good.txt --optimiser adam": 'did you mean "adamw"?',
    "language good.txt --device gpu": "use auto, cpu, cuda or mps",
    "language good.txt --steps 3 --epochs 2": "--steps and --epochs exclude each other",
    "language good.txt --set steps": "write it as in optimizer.lr=0.01",
    "language good.txt --config broken.tom": 'did you mean "broken.toml"?',
    "language good.txt --config broken.toml": "broken.toml: the recipe is not valid TOML",
    "language good.txt --config hollow": "hollow is a directory; give an ordinary file",
    "language good.txt --from runs/labels": "needs a decoder",
    "language good.txt --from hollow": "is not a model",
    "language good.txt --freeze": "--freeze is for classify",
    "langauge good.txt": 'unknown job "langauge"; did you mean "language"?',
    "classify good.txt": "add a first line with the column names, and name it .csv or .tsv",
    "classify reviews.xlsx": "save its sheet as .csv",
    "classify reviews.json": "write one object per line and name it .jsonl",
    "classify half.jsonl": "half.jsonl line 2: not JSON at character 10",
    "classify hollow": "name files that end in .csv, .tsv, .tab, .jsonl, .parquet or .xlsx",
    "classify head.csv": "head.csv is empty; it holds no rows",
    "classify same.csv": 'every row has the label "good" (2 in all); at least two different labels',
    "classify ragged.csv": "line 3: 1 field where line 1 has 2; put a field that holds a comma",
    "classify stars.csv": "which column holds the text? pass --text NAME or NUMBER (columns: id, b",
    "classify stars.csv --text body --label star": 'did you mean "stars"? (columns: id, body',
    "classify stars.csv --text 9 --label 3": "there is no column 9 for the text; columns count",
    "classify stars.csv --text body --label body": "are both column 2; name two",
    "classify reviews.csv --source a": "--source is not for classify; it reads text and label",
    "translate good.txt": "two parallel files with --source FILE and --target FILE",
    "translate --source a.en": "need both --source FILE and --target FILE",
    "translate --source a.en --target a.de": "parallel files need the same number of lines",
    "embed zero.txt": "zero.txt is empty",
    "masked blank.txt": "blank.txt is empty",
}


@pytest.mark.parametrize("line", TRAINING)
@pytest.mark.parametrize("command", ["train", "plan"])
def test_data_that_cannot_be_learnt_from_is_told_why(qkv: Qkv, command: str, line: str) -> None:
    path = ["-o", "new"] if command == "train" else []
    assert TRAINING[line] in error_line(qkv(command, *line.split(), *path))
    assert not Path("new").exists()


INVALID_ARGUMENTS = {
    ("generate", "runs/writer", LONG): "prompt has 52 tokens but the model reads at most 31; short",
    ("generate", "runs/writer", "a", "--truncate", "right"): 'only "left" is known',
    ("generate", "runs/writer", "a", "--temperature", "-1"): "must be 0 (greedy) or above",
    ("generate", "runs/writer", "a", "--top-k", "0"): "--top-k 0 must be an integer of 1 or more",
    ("generate", "runs/writer", "a", "--top-p", "2"): "--top-p 2 must be above 0 and at most 1",
    ("generate", "runs/writer", "a", "--max-tokens", "99"): "ask for at most 30",
    ("generate", "runs/writer", "a", "--chat"): "give it a plain string as prompt",
    ("generate", "runs/writer", "a", "--system", "x"): "of a chat; add --chat",
    ("generate", "runs/writer", "a", "--draft", "ngrma"): 'did you mean "ngram"?',
    ("generate", "runs/writer", "a", "--draft", "runs/labels"): "is a classifier",
    ("generate", "runs/writer", "a", "--stop", ""): "a stop string is empty",
    ("generate", "runs/writer", "a", "--threads", "9999"): "--threads 9999 is not between 1 and ",
    ("generate", "runs/writer", "a", "--file", "good.txt"): "--file exclude each other",
    ("generate", "runs/writer", "--file", "goood.txt"): 'did you mean "good.txt"?',
    ("generate", "runs/writer", "--file", "hollow"): "hollow is a folder; name a file in it",
    ("generate", "runs/writer", "--file", "latin.txt"): "save the file as UTF-8",
    ("classify", "runs/labels", LONG): "52 tokens but the model reads at most 31; shorten it, or",
    ("classify", "runs/labels", "a", "--long", "avg"): 'did you mean "average"?',
    ("embed", "runs/vectors", LONG): "or pass --long truncate",
    ("embed", "runs/vectors", "a", "-o", "a.txt"): "must end in .npy, .parquet, .csv",
    ("embed", "runs/vectors", "a", "-o", "no/a.npy"): "there is no folder no to write a.npy to",
    ("embed", "runs/vectors", "a", "-o", "taken.npy"): "exists; pass --force to overwrite it",
    ("embed", "runs/vectors", "a", "-o", "a.npy", "--json"): "exclude each other",
    ("embed", "runs/vectors", "a", "--resume"): "name it with -o",
    ("translate", "runs/translator", LONG): "sentence by sentence with --long sentences",
    ("translate", "runs/translator", "a", "--long", "sentence"): 'did you mean "sentences"?',
    ("translate", "runs/translator", "a", "--beams", "2", "--best", "5"): "or for more beams",
    (
        "translate",
        "runs/translator",
        "a",
        "--layer",
        "0",
    ): "is the layer of the alignment; add --alignment",
    ("translate", "runs/translator", "a", "--layer", "7", "--alignment"): "the decoder has 0 to 0",
    ("similar", "runs/vectors", "a", LONG): "52 tokens but the model reads at most 31",
    ("similar", "runs/vectors", "", "b"): "text A is empty",
    ("cluster", "runs/vectors", "goood.txt"): 'did you mean "good.txt"?',
    ("cluster", "runs/vectors", "blank.txt"): "blank.txt is empty; it holds no lines",
    ("cluster", "runs/vectors", "reviews.csv", "--text", "revue"): 'did you mean "review"?',
    ("cluster", "runs/vectors", "good.txt", "-k", "99"): "60 texts, 3 of them different",
    ("cluster", "runs/vectors", "good.txt", "-o", "a.pdf"): "the name must end in .html or .csv",
    ("evaluate", "runs/labels"): "as in: qkv evaluate runs/labels test.csv",
    ("evaluate", "runs/labels", "reviews.csv", "--label", "sentment"): "did you mean",
    ("evaluate", "runs/labels", "stars.csv"): "which column holds the text?",
    ("evaluate", "runs/mute", "good.txt"): "put its tokenizer.json into its directory",
    ("evaluate", "runs/translator", "good.txt"): "two parallel files",
    ("data", "clasify", "-o", "a.tsv"): 'did you mean "classify"?',
    ("data", "classify", "-o", "a.txt"): "the name must end in .csv, .tsv or .jsonl",
    ("data", "classify", "-o", "no/a.tsv"): "there is no folder no; make it first",
    ("data", "classify", "-o", "taken.tsv"): "taken.tsv exists; pass --force to overwrite it",
    ("export", "runs/writer", "--to", "onnx", "-o", "new"): "known: hf",
    ("import", "runs/vectors", "-o", "new"): "pass it to any command directly",
    ("import", "weight", "-o", "new"): 'did you mean "weights"?',
    ("import", "hollow", "-o", "new"): "has no config.json with a model_type",
    ("train", "language", "-o", "hollow", "--resume"): "start one without --resume",
    ("train", "language", "good.txt", "-o", "runs/writer"): "is not empty",
    ("lemma", "-o", "a.gif"): "end it with one of .html, .png, .svg, .pdf, .tex, .md, .json",
    ("lemma", "-o", "no/a.png"): "make it first",
    ("tour", "--device", "gpu"): "use auto, cpu, cuda or mps",
    ("explain", "--worksheet", "hollow"): "cannot read hollow",
}


@pytest.mark.parametrize("arguments", INVALID_ARGUMENTS, ids=" ".join)
def test_what_cannot_be_done_is_told_with_what_can(qkv: Qkv, arguments: tuple[str, ...]) -> None:
    assert INVALID_ARGUMENTS[arguments] in error_line(qkv(*arguments))


def test_files_that_were_in_the_way_are_as_they_were() -> None:
    assert Path("taken.npy").read_bytes() == Path("taken.tsv").read_bytes() == b"mine"


@pytest.mark.parametrize("command", ["generate runs/writer", "classify runs/labels"])
def test_nothing_to_answer_is_no_error_but_is_said(qkv: Qkv, command: str) -> None:
    code, out, err = qkv(*command.split(), "--file", "zero.txt")
    assert (code, out) == (0, "")
    assert err == "note: zero.txt is empty; nothing to do\n"


# What typer cannot understand, said by us; see `usage_error_message`.
USAGE_ERRORS = {
    "train": "as in: qkv train language book.txt -o runs/book",
    "train language": "as in: qkv train language book.txt",
    "data": "as in: qkv data language -o python.txt",
    "similar runs/vectors a": "as in: qkv similar runs/vectors ",
    "similar runs/vectors a b c": "a text with spaces needs quotes around it",
    "train language good.txt -o new --steps 0": "--steps 0 must be 1 or more",
    "train language good.txt -o new --steps=many": "--steps many must be a whole number",
    "generate runs/writer a --temperature hot": "--temperature hot must be a number",
    "generate runs/writer a --seed -1": "--seed -1 must be 0 or more",
    "explain --precision 99": "--precision 99 must be 12 or less",
    "cluster runs/vectors good.txt -k 0": "-k 0 must be 1 or more",
    "cluster runs/vectors good.txt --method kmean": 'did you mean "kmeans"?',
    "trian language": "Did you mean 'train'?",
    "train language --sizee tiny -o new": "--size",
    "explain --exmple poem": "--example",
}


@pytest.mark.parametrize("line", USAGE_ERRORS)
def test_a_line_that_cannot_be_understood_is_answered_with_what_could(line: str) -> None:
    with pytest.raises(ClickException) as error:
        app(line.split(), standalone_mode=False)
    output = usage_error_message(error.value, line.split())
    assert USAGE_ERRORS[line] in output
    assert "\n" not in output
    assert "Input should" not in output
