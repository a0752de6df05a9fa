"""Where weights are looked for, which shards belong together, and which links are followed."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from tests.weights.written import content, entry, message, same, shard
from torch import Tensor

from qkv.errors import BundleError
from qkv.weights import open_weights

ONE, TWO = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"
INDEX = "model.safetensors.index.json"


def tensors(*names: str) -> dict[str, Tensor]:
    return {name: torch.randn(3, 5 + len(name)) for name in names}


@pytest.fixture
def sharded(tmp_path: Path) -> Path:
    return shard(tmp_path / "model", {ONE: tensors("b", "a.x"), TWO: tensors("c", "empty")})


def changed(place: Path, **members: object) -> Path:
    """The same directory with other members in its index."""
    index = json.loads((place / INDEX).read_text())
    (place / INDEX).write_text(json.dumps(index | members))
    return place


def test_a_sharded_model_is_all_its_tensors(sharded: Path) -> None:
    weights = open_weights(sharded)
    expected = load_file(sharded / ONE) | load_file(sharded / TWO)
    assert set(weights) == set(expected)
    assert weights.nbytes == sum(t.nbytes for t in expected.values())
    for name, t in expected.items():
        assert same(weights.read(name), t)
        assert same(weights.mmap(name), t)


@pytest.mark.parametrize("name", ["model.safetensors", "adapter.safetensors"])
def test_a_directory_with_one_file_is_that_file(name: str, tmp_path: Path) -> None:
    save_file(tensors("a"), tmp_path / name)
    (tmp_path / "pytorch_model.bin").write_bytes(b"a pickle beside it is not looked at")
    (tmp_path / f"._{name}").write_bytes(b"nor what other systems leave behind")
    assert list(open_weights(tmp_path)) == ["a"]


def test_model_safetensors_comes_before_other_files(tmp_path: Path) -> None:
    save_file(tensors("a"), tmp_path / "model.safetensors")
    save_file(tensors("b"), tmp_path / "another.safetensors")
    assert list(open_weights(tmp_path)) == ["a"]


def test_an_index_may_name_one_file(tmp_path: Path) -> None:
    shard(tmp_path, {"model.safetensors": tensors("a")})
    assert list(open_weights(tmp_path)) == ["a"]


def test_an_index_beside_another_model_is_refused(sharded: Path) -> None:
    save_file(tensors("a"), sharded / "model.safetensors")
    assert "which does not name it; move away the one" in message(sharded)


def test_several_files_without_an_index_are_refused(sharded: Path) -> None:
    (sharded / INDEX).unlink()
    assert f"holds 2 safetensors files ('{ONE}', '{TWO}') and no {INDEX}" in message(sharded)


@pytest.mark.parametrize(
    "name",
    ["pytorch_model.bin", "model.pt", "x.pth", "x.ckpt", "pytorch_model.fp16.bin.index.json"],
)
def test_pickle_files_are_refused_with_the_way_out(name: str, tmp_path: Path) -> None:
    torch.save(tensors("a"), tmp_path / name)
    for place in (tmp_path, tmp_path / name):
        says = message(place)
        assert "can run code" in says
        assert "save_pretrained(..., safe_serialization=True)" in says


def test_a_directory_without_weights_says_what_is_expected(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    assert "holds no weights; expected model.safetensors, or" in message(tmp_path)


@pytest.mark.parametrize("name", ["nowhere", "nowhere.safetensors", "no\0where"])
def test_a_place_that_does_not_exist_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(BundleError, match=r"does not exist; give a \.safetensors file"):
        open_weights(tmp_path / name)


def test_a_file_of_another_kind_is_refused(tmp_path: Path) -> None:
    (tmp_path / "model.gguf").write_bytes(b"GGUF")
    assert "is not a .safetensors file" in message(tmp_path / "model.gguf")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may look into every directory")
def test_a_directory_nobody_may_look_into_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0)
    try:
        assert "cannot look into" in message(tmp_path)
    finally:
        tmp_path.chmod(0o700)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (Path.mkdir, "is a directory; give an ordinary file"),
        (os.mkfifo, "is a device or a pipe; give an ordinary file"),
    ],
)
@pytest.mark.parametrize("name", ["model.safetensors", INDEX])
def test_what_is_not_an_ordinary_file_is_refused_at_once(
    make: Callable[[Path], None], says: str, name: str, tmp_path: Path
) -> None:
    make(tmp_path / name)
    assert says in message(tmp_path)


def test_a_device_is_refused(tmp_path: Path) -> None:
    (tmp_path / "zero.safetensors").symlink_to("/dev/zero")
    assert "is a device or a pipe" in message(tmp_path / "zero.safetensors")


@pytest.mark.parametrize(
    ("raw", "says"),
    [
        (b"", "it has its end instead of a {"),
        (b"\xff", "byte 0 is not UTF-8"),
        (b"[]", "it has '[]' instead of a {"),
        (b"{}", "has no weight_map"),
        (b'{"weight_map": {}}', "has no weight_map"),
        (b'{"weight_map": []}', "weight_map, a map of strings to strings"),
        (b'{"weight_map": {"a": "b"}} {}', "it has '{}' instead of its end"),
        (b'{"weight_map": {"a": 1}}', "a string, as all values in weight_map"),
        (b'{"weight_map": {"a": "b", "a": "b"}}', "names 'a' twice"),
        (b'{"metadata": ' + b"[" * 5000 + b"]" * 5000 + b"}", "nested too deeply"),
        (b'{"metadata": [' + b"[]," * 10**5 + b"[]]}", "a value of at most 65536 characters"),
    ],
)
def test_a_damaged_index_is_refused_with_the_reason(raw: bytes, says: str, sharded: Path) -> None:
    (sharded / INDEX).write_bytes(raw)
    assert says in message(sharded)


def test_an_overlong_index_is_not_read(sharded: Path) -> None:
    os.truncate(sharded / INDEX, 100_000_001)
    assert "has 100000001 bytes, and an index at most 100000000" in message(sharded)


@pytest.mark.parametrize(
    "name",
    [
        "/etc/passwd",
        "/tmp/x.safetensors",
        "../x.safetensors",
        "..",
        "",
        ".safetensors",
        "sub/x.safetensors",
        "sub\\x.safetensors",
        "C:x.safetensors",
        "x\0.safetensors",
        "x\n.safetensors",
        "pytorch_model.bin",
    ],
)
def test_an_index_names_only_files_beside_it(name: str, sharded: Path) -> None:
    changed(sharded, weight_map={"a.x": ONE, "b": ONE, "c": name})
    assert "shards must be .safetensors files beside the index" in message(sharded)


def test_missing_shards_are_named(sharded: Path) -> None:
    (sharded / TWO).unlink()
    assert f"lacks 1 of the 2 files its index names: '{TWO}'; get them too" in message(sharded)


def test_a_tensor_its_shard_lacks_is_named(sharded: Path) -> None:
    save_file(tensors("c"), sharded / TWO)
    assert f"{TWO} lacks 'empty', which the index promises in it" in message(sharded)


def test_a_tensor_in_two_shards_is_named(sharded: Path) -> None:
    save_file(tensors("c", "empty", "b"), sharded / TWO)
    assert f"{TWO} holds the tensor 'b', which the index places in '{ONE}'" in message(sharded)


def test_a_tensor_the_index_does_not_list_is_named(sharded: Path) -> None:
    save_file(tensors("c", "empty", "d"), sharded / TWO)
    assert f"{TWO} holds the tensor 'd', not in the index" in message(sharded)


def test_a_damaged_shard_is_named(sharded: Path) -> None:
    (sharded / TWO).write_bytes(content({"c": entry("F32", [8], 0, 32)}, bytes(24)))
    assert f"{TWO}: tensor 'c' should end at byte" in message(sharded)


def as_cached(model: Path, files: Path) -> Path:
    """The files as Hugging Face's cache keeps them: blobs, and a revision that links to them."""
    revision = model / "snapshots" / "0123abcd"
    revision.mkdir(parents=True)
    (model / "blobs").mkdir()
    for number, path in enumerate(sorted(files.iterdir())):
        path.rename(model / "blobs" / f"hash{number}")
        (revision / path.name).symlink_to(Path("../../blobs") / f"hash{number}")
    return revision


def test_a_hugging_face_cache_is_read_through_its_links(sharded: Path, tmp_path: Path) -> None:
    revision = as_cached(tmp_path / "models--org--name", sharded)
    (tmp_path / "shortcut").symlink_to(revision)
    for place in (revision, tmp_path / "shortcut"):
        assert set(open_weights(place)) == {"a.x", "b", "c", "empty"}


def test_a_cache_without_its_blob_says_so(sharded: Path, tmp_path: Path) -> None:
    revision = as_cached(tmp_path / "models--org--name", sharded)
    (revision / TWO).resolve().unlink()
    assert f"{TWO} is a link that leads nowhere" in message(revision)


def test_the_blobs_of_another_model_are_out_of_reach(sharded: Path, tmp_path: Path) -> None:
    revision = as_cached(tmp_path / "models--org--name", sharded)
    other = tmp_path / "models--org--other" / "blobs"
    other.mkdir(parents=True)
    (revision / TWO).resolve().rename(other / "hash")
    (revision / TWO).unlink()
    (revision / TWO).symlink_to(other / "hash")
    assert "out of the model's directory" in message(revision)


def test_blobs_that_are_a_link_themselves_are_out_of_reach(sharded: Path, tmp_path: Path) -> None:
    revision = as_cached(tmp_path / "models--org--name", sharded)
    blobs = tmp_path / "models--org--name" / "blobs"
    blobs.rename(tmp_path / "elsewhere")
    blobs.symlink_to(tmp_path / "elsewhere")
    assert "out of the model's directory, to" in message(revision)


def test_blobs_outside_a_cache_are_out_of_reach(sharded: Path, tmp_path: Path) -> None:
    revision = as_cached(tmp_path / "models--org--name", sharded)
    moved = revision.parent.rename(revision.parent.with_name("pictures")) / revision.name
    assert "out of the model's directory" in message(moved)


@pytest.mark.parametrize("name", [ONE, INDEX])
def test_a_link_out_of_the_directory_is_refused(name: str, sharded: Path, tmp_path: Path) -> None:
    (sharded / name).rename(tmp_path / "private")
    (sharded / name).symlink_to("../private")
    assert f"{name} is a link that leads out of the model's directory, to {tmp_path}" in message(
        sharded
    )


def test_a_link_within_the_directory_is_followed(sharded: Path) -> None:
    (sharded / "files").mkdir()
    (sharded / ONE).rename(sharded / "files" / "one")
    (sharded / ONE).symlink_to("files/one")
    assert "b" in open_weights(sharded)


def test_a_link_the_user_names_is_followed(sharded: Path, tmp_path: Path) -> None:
    (tmp_path / "mine.safetensors").symlink_to(sharded / ONE)
    assert set(open_weights(tmp_path / "mine.safetensors")) == {"a.x", "b"}


def test_links_in_a_circle_lead_nowhere(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").symlink_to("model.safetensors")
    assert "is a link that leads nowhere" in message(tmp_path)
