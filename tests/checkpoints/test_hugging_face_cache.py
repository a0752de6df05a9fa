"""A model as the cache of Hugging Face keeps it: every file a link, also those in folders."""

import json
from pathlib import Path

import pytest
import torch
from tests.checkpoints.cases_bert import bert

from qkv.bundle import Bundle
from qkv.errors import BundleError

KIND = "sentence_transformers.models"
MODULES = [
    {"idx": 0, "name": "0", "path": "", "type": f"{KIND}.Transformer"},
    {"idx": 1, "name": "1", "path": "1_Pooling", "type": f"{KIND}.Pooling"},
]


@pytest.fixture
def plain(tmp_path: Path) -> Path:
    directory = tmp_path / "plain"
    bert("BertModel").save(directory)
    (directory / "modules.json").write_text(json.dumps(MODULES))
    (directory / "1_Pooling").mkdir()
    (directory / "1_Pooling" / "config.json").write_text('{"pooling_mode_cls_token": true}')
    return directory


def cached(plain: Path, model: Path) -> Path:
    """The revision, whose links lead to blobs; in a folder by one step more."""
    revision = model / "snapshots" / "0123abcd"
    (model / "blobs").mkdir(parents=True)
    for number, path in enumerate(sorted(p for p in plain.rglob("*") if p.is_file())):
        name = path.relative_to(plain)
        (model / "blobs" / f"hash{number}").write_bytes(path.read_bytes())
        (revision / name).parent.mkdir(parents=True, exist_ok=True)
        up = "../" * (1 + len(name.parts))
        (revision / name).symlink_to(f"{up}blobs/hash{number}")
    return revision


def test_a_sentence_encoder_in_the_cache_is_opened(plain: Path, tmp_path: Path) -> None:
    model = Bundle.load(cached(plain, tmp_path / "models--org--name")).model
    expected = Bundle.load(plain).model
    assert model.config == expected.config
    assert model.config.output.pooling.kind == "first"  # type: ignore[union-attr]
    ids = torch.arange(3 * 7).view(3, 7)
    assert torch.equal(model(ids), expected(ids))


def test_a_folder_of_the_cache_reaches_no_other_model(plain: Path, tmp_path: Path) -> None:
    revision = cached(plain, tmp_path / "models--org--name")
    other = cached(plain, tmp_path / "models--org--other")
    link = revision / "1_Pooling" / "config.json"
    link.unlink()
    link.symlink_to((other / "1_Pooling" / "config.json").resolve())
    with pytest.raises(BundleError, match="leads out of the model's directory"):
        Bundle.load(revision)
