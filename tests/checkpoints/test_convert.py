"""`qkv import`, `qkv export`, `qkv inspect`, and fine-tuning, as a person runs them."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from tests.checkpoints.cases_bert import bert
from tests.checkpoints.cases_llama import llama
from tests.checkpoints.cases_t5 import CASES as T5
from tests.checkpoints.peers import Peer, load, quietly, transformers
from tokenizers import Tokenizer as Backend
from tokenizers import decoders, models, pre_tokenizers, processors, trainers

from qkv.bundle import Bundle
from qkv.engine.optimized import int8_supported

Ran = tuple[int, str, str]
TEXTS = [f"the {kind} number {i} sat on mat {i}" for i in range(40) for kind in ("cat", "dog")]


@pytest.fixture(autouse=True)
def in_a_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)


def save(
    peer: Peer, directory: Path, special_tokens: dict[str, str], around: tuple[str, str]
) -> None:
    """A public checkpoint of the peer with a small tokenizer of its own kind."""
    peer.save(directory)
    backend = Backend(models.WordPiece(unk_token="[UNK]"))  # type: ignore[call-arg]
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    special = list(dict.fromkeys(("[PAD]", "[UNK]", *special_tokens.values())))
    trainer = trainers.WordPieceTrainer(vocab_size=90, special_tokens=special, show_progress=False)
    backend.train_from_iterator(TEXTS, trainer)
    backend.decoder = decoders.WordPiece()
    before, after = around
    backend.post_processor = processors.TemplateProcessing(
        single=" ".join(part for part in (before, "$A", after) if part),
        special_tokens=[(t, backend.token_to_id(t)) for t in around if t],
    )
    with quietly():
        fast = transformers.PreTrainedTokenizerFast(
            tokenizer_object=backend, pad_token="[PAD]", unk_token="[UNK]", **special_tokens
        )
        fast.save_pretrained(directory)
    config = json.loads((directory / "config.json").read_text())
    ids = {"pad_token_id": backend.token_to_id("[PAD]")}
    if "eos_token" in special_tokens:
        ids["eos_token_id"] = backend.token_to_id(special_tokens["eos_token"])
    if config.get("is_encoder_decoder"):
        ids["decoder_start_token_id"] = ids["pad_token_id"]
    (directory / "config.json").write_text(json.dumps(config | ids))


@pytest.fixture
def small_bert(tmp_path: Path) -> Path:
    special_tokens = {"cls_token": "[CLS]", "sep_token": "[SEP]", "mask_token": "[MASK]"}
    save(bert("BertModel"), tmp_path / "bert", special_tokens, ("[CLS]", "[SEP]"))
    return tmp_path / "bert"


def test_import_prints_the_card_and_keeps_it(qkv: Callable[..., Ran], small_bert: Path) -> None:
    code, out, err = qkv("import", small_bert, "-o", "bundle")
    assert code == 0
    for part in ("bert (bert, BertModel)", "53 as they are", "self-test", "wordpiece, 90 tokens"):
        assert part in out
    count = 11 if int8_supported() else 10
    assert err == f"wrote bundle\nchecked: all {count} checks that apply hold\n"
    code, out, _ = qkv("inspect", "bundle", "--json")
    facts = json.loads(out)
    assert facts["parameters"] == sum(p.numel() for p in Bundle.load("bundle").model.parameters())
    assert facts["import"]["layout"] == "bert"
    assert 0 < facts["import"]["self_test"] < 1e-5
    assert "53 as they are" in qkv("inspect", "bundle")[1]


def test_every_command_takes_a_public_directory_as_it_is(
    qkv: Callable[..., Ran], small_bert: Path
) -> None:
    rows = [f"{text},{'cat' if 'cat' in text else 'dog'}" for text in TEXTS]
    Path("pets.csv").write_text("\n".join(["text,label", *rows]))
    assert "encoder-only" in qkv("inspect", small_bert)[1]
    assert qkv("evaluate", small_bert, "pets.csv", "--json")[0] == 0
    arguments = ["pets.csv", "--from", small_bert, "--steps", 3, "--batch", 200]
    assert qkv("train", "classify", *arguments, "-o", "run")[0] == 0
    code, out, _ = qkv("evaluate", "run", "pets.csv", "--json")
    assert code == 0
    assert json.loads(out)["examples"] == len(TEXTS)
    facts = json.loads(qkv("inspect", "run", "--json")[1])
    assert facts["trained_for"] == "classify"
    assert facts["began_as"] == str(small_bert)
    assert 0.0 <= facts["held_out_accuracy"] <= 1.0


def test_a_fine_tuned_run_is_resumed_with_its_marks(
    qkv: Callable[..., Ran], small_bert: Path
) -> None:
    rows = [f"{text},{'cat' if 'cat' in text else 'dog'}" for text in TEXTS]
    Path("pets.csv").write_text("\n".join(["text,label", *rows]))
    arguments = ["classify", "pets.csv", "--from", small_bert, "--steps", 4, "--batch", 200]
    assert qkv("train", *arguments, "-o", "whole")[0] == 0
    assert qkv("train", *arguments, "-o", "run")[0] == 0
    files = {"recipe.toml", "metrics.jsonl", "tokenizer.json", "special_tokens.json", "checkpoints"}
    for path in Path("run").iterdir():
        if path.name not in files:
            path.unlink()
    code, _, err = qkv("train", "classify", "-o", "run", "--resume")
    assert code == 0, err
    one, other = (Bundle.load(name) for name in ("whole", "run"))
    for name, tensor in one.model.state_dict().items():
        assert torch.equal(other.model.state_dict()[name], tensor), name
    assert other.tokenizer is not None
    assert other.tokenizer.add_special_tokens([7]) == [
        other.tokenizer.bos_id,
        7,
        other.tokenizer.eos_id,
    ]


def test_a_fine_tuned_classifier_is_opened_by_the_peer(
    qkv: Callable[..., Ran], small_bert: Path
) -> None:
    """Of a body it gets the head its layout has; of a sentence encoder, the mean it was used to."""
    rows = [f"{text},{'cat' if 'cat' in text else 'dog'}" for text in TEXTS]
    Path("pets.csv").write_text("\n".join(["text,label", *rows]))
    start = ["pets.csv", "--from", small_bert, "--steps", 2, "--batch", 200]
    assert qkv("train", "classify", *start, "-o", "first")[0] == 0
    code, _, err = qkv("export", "first", "--to", "hf", "-o", "out")
    assert (code, err) == (0, "wrote out as bert\n")
    model = load("BertForSequenceClassification", Path("out"))
    ids = torch.randint(5, 90, (2, 9))
    bundle = Bundle.load("first")
    with torch.no_grad():
        torch.testing.assert_close(model(ids).logits, bundle.model(ids), rtol=1e-4, atol=1e-5)


def test_a_decoder_without_padding_learns_on(qkv: Callable[..., Ran], tmp_path: Path) -> None:
    special_tokens = {"bos_token": "<s>", "eos_token": "</s>"}
    save(llama(tie_word_embeddings=True), tmp_path / "llama", special_tokens, ("<s>", ""))
    Path("book.txt").write_text("\n".join(TEXTS * 4))
    arguments = ["book.txt", "--from", tmp_path / "llama", "--steps", 3, "--context", 32]
    assert qkv("train", "language", *arguments, "-o", "run", "--batch", 64)[0] == 0
    assert qkv("evaluate", "run", "book.txt", "--json")[0] == 0
    assert qkv("export", "run", "--to", "hf", "-o", "out")[0] == 0
    assert load("LlamaForCausalLM", Path("out")).config.eos_token_id is not None


@pytest.mark.slow
def test_a_translator_learns_on(qkv: Callable[..., Ran], tmp_path: Path) -> None:
    save(T5["t5"], tmp_path / "t5", {"eos_token": "</s>"}, ("", "</s>"))
    rows = [f"{text},{text[::-1]}" for text in TEXTS]
    Path("pairs.csv").write_text("\n".join(["source,target", *rows]))
    arguments = ["pairs.csv", "--from", tmp_path / "t5", "--steps", 3, "--batch", 300]
    code, _, err = qkv("train", "translate", *arguments, "-o", "run")
    assert code == 0, err
    code, out, _ = qkv("evaluate", "run", "pairs.csv", "--json")
    assert code == 0
    assert "bleu" in json.loads(out)


def test_a_classifier_of_a_sentence_encoder_can_be_asked_for_a_public_head(
    qkv: Callable[..., Ran], small_bert: Path
) -> None:
    rows = [f"{text},{'cat' if 'cat' in text else 'dog'}" for text in TEXTS]
    Path("pets.csv").write_text("\n".join(["text,label", *rows]))
    kinds = ["Transformer", "Pooling", "Normalize"]
    modules = [
        {"path": "" if i == 0 else f"{i}_{kind}", "type": f"sentence_transformers.models.{kind}"}
        for i, kind in enumerate(kinds)
    ]
    (small_bert / "modules.json").write_text(json.dumps(modules))
    (small_bert / "1_Pooling").mkdir()
    (small_bert / "1_Pooling/config.json").write_text('{"pooling_mode": "mean"}')
    start = ["pets.csv", "--from", small_bert, "--steps", 2, "--batch", 200]
    assert qkv("train", "classify", *start, "-o", "mean")[0] == 0
    code, _, err = qkv("export", "mean", "-o", "no")
    assert code == 2
    assert "output.pooling is first, not mean" in err
    public = ["--set", "model.output.pooling.kind=first", "--set", "model.output.hidden=48"]
    assert qkv("train", "classify", *start, *public, "-o", "first")[0] == 0
    assert qkv("export", "first", "-o", "out")[0] == 0
    assert load("BertForSequenceClassification", Path("out")).config.num_labels == 2


def test_the_other_jobs_of_a_body_are_written_back(
    qkv: Callable[..., Ran], small_bert: Path
) -> None:
    Path("book.txt").write_text("\n".join(TEXTS * 4))
    arguments = ["book.txt", "--from", small_bert, "--steps", 2, "--context", 32]
    assert qkv("train", "masked", *arguments, "-o", "masked")[0] == 0
    assert qkv("export", "masked", "-o", "out")[0] == 0
    load("BertForMaskedLM", Path("out"))
    code, _, err = qkv(
        "train", "masked", "book.txt", "--from", small_bert, "-o", "no", "--context", 99
    )
    assert code == 2
    assert "--context 99 is more than the 41 positions" in err


def test_a_pooled_vector_is_written_back_with_a_note(
    qkv: Callable[..., Ran], small_bert: Path
) -> None:
    assert qkv("import", small_bert, "-o", "bundle", "--pooler")[0] == 0
    code, _, err = qkv("export", "bundle", "-o", "out")
    assert code == 0
    assert "pooler_output" in err
    ids = torch.randint(5, 90, (2, 9))
    with torch.no_grad():
        theirs = load("BertModel", Path("out"))(ids).pooler_output
        torch.testing.assert_close(Bundle.load("bundle").model(ids), theirs, rtol=1e-4, atol=1e-5)


def test_a_model_without_a_tokenizer_says_so(qkv: Callable[..., Ran], tmp_path: Path) -> None:
    llama().save(tmp_path / "llama")
    Path("book.txt").write_text("a text")
    code, _, err = qkv("evaluate", tmp_path / "llama", "book.txt")
    assert code == 2
    assert "has no tokenizer" in err


MISTAKES: dict[tuple[str, ...], str] = {
    ("import", "nowhere", "-o", "new"): "nowhere does not exist",
    ("import", "empty", "-o", "new"): "is not a public checkpoint",
    ("import", "note.txt", "-o", "new"): "note.txt is a file; pass the directory",
    ("import", "bert", "-o", "note.txt"): "note.txt is not a directory",
    ("import", "bert", "-o", "full"): "full holds other files",
    ("export", "bert", "-o", "full"): "full exists and is not an empty directory",
    ("export", "nowhere", "-o", "new"): "nowhere is not a directory",
    ("inspect", "bert/model.safetensors"): "is not a directory",
    ("export", "bert", "--to", "onnx", "-o", "new"): 'unknown format "onnx"',
    ("inspect", "empty"): "is not a model",
    ("train", "translate", "--from", "bert", "-o", "new"): "needs an encoder–decoder",
    ("train", "language", "--from", "bert", "-o", "new"): "needs a decoder",
}


@pytest.mark.slow
@pytest.mark.parametrize("arguments", MISTAKES)
def test_a_mistake_is_one_line_and_exit_code_2(
    arguments: tuple[str, ...], qkv: Callable[..., Ran], small_bert: Path
) -> None:
    Path("empty").mkdir()
    Path("full").mkdir()
    (Path("full") / "thesis.txt").write_text("years of work")
    Path("note.txt").write_text("a note")
    code, out, err = qkv(*arguments)
    assert (code, out) == (2, "")
    assert err.count("\n") == 1
    assert MISTAKES[arguments] in err
    assert not Path("new").exists()
