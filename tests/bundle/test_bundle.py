"""A model on disk is whole or not there, and comes back bit for bit."""

import contextlib
import hashlib
import json
import os
import resource
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from qkv.bundle import Bundle
from qkv.bundle.manifest import publish, recover, verify
from qkv.errors import BundleError, ConfigError, QkvError, UsageError
from qkv.model import Model, build, preset
from qkv.text import Tokenizer
from qkv.text.tokenizer import TOKENIZER_COMPANIONS

FAMILIES = ["language-tiny", "classify-tiny", "translate-tiny"]
FILES = {"config.json", "model.safetensors", "MANIFEST.json"}


def model_of(name: str = "language-tiny", seed: int = 0) -> Model:
    return build(preset(name), seed=seed).eval()


def answer(model: Model, name: str) -> Tensor:
    ids = torch.arange(2 * 7).view(2, 7) * 31 % 1000
    with torch.no_grad():
        return model(ids, ids[:, :5]) if name.startswith("translate") else model(ids)


def assert_same_weights(one: Model, other: Model) -> None:
    mine, theirs = one.state_dict(), other.state_dict()
    assert mine.keys() == theirs.keys()
    for name, t in mine.items():
        assert t.dtype == theirs[name].dtype
        assert torch.equal(t, theirs[name]), name


def beside(place: Path) -> list[str]:
    return sorted(path.name for path in place.parent.iterdir() if path != place)


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    """A healthy bundle, to be damaged."""
    place = tmp_path / "model"
    Bundle(model_of()).save(place)
    return place


def seal(place: Path) -> None:
    """Make the manifest true again after a change, as a program that wrote it all would."""
    files = {}
    for path in place.iterdir():
        if path.name != "MANIFEST.json":
            content = path.read_bytes()
            digest = hashlib.sha256(content).hexdigest()
            files[path.name] = {"bytes": len(content), "sha256": digest}
    (place / "MANIFEST.json").write_text(json.dumps({"format": 1, "files": files}))


def message(place: Path, kind: type[QkvError] | tuple[type[QkvError], ...] = BundleError) -> str:
    """What loading that says, which is one line."""
    with pytest.raises(kind) as caught:
        Bundle.load(place)
    says = str(caught.value)
    assert "\n" not in says
    assert len(says.replace(str(place), "")) < 400
    return says


@pytest.mark.parametrize("name", FAMILIES)
def test_a_model_comes_back_as_it_was(name: str, tmp_path: Path) -> None:
    model = model_of(name)
    Bundle(model).save(tmp_path / "model")
    again = Bundle.load(tmp_path / "model").model

    assert type(again) is type(model)
    assert again.config == model.config
    assert_same_weights(again, model)
    assert torch.equal(answer(again, name), answer(model, name))


@pytest.mark.parametrize("name", FAMILIES)
def test_saving_what_was_loaded_writes_the_same_bytes(name: str, tmp_path: Path) -> None:
    Bundle(model_of(name)).save(tmp_path / "one")
    Bundle.load(tmp_path / "one").save(tmp_path / "two")
    for file in FILES:
        assert (tmp_path / "one" / file).read_bytes() == (tmp_path / "two" / file).read_bytes()


def test_a_loaded_model_is_ready_to_answer_and_to_learn(saved: Path) -> None:
    model = Bundle.load(saved).model
    assert not model.training
    assert all(p.requires_grad and not p.is_meta for p in model.parameters())
    model(torch.tensor([[1, 2, 3]])).sum().backward()


def test_half_precision_comes_back_in_half_precision(tmp_path: Path) -> None:
    model = model_of().bfloat16()
    Bundle(model).save(tmp_path / "model")
    assert_same_weights(Bundle.load(tmp_path / "model").model, model)


@pytest.mark.parametrize("name", FAMILIES)
def test_each_weight_is_stored_once(name: str, tmp_path: Path) -> None:
    model = model_of(name)
    Bundle(model).save(tmp_path / "model")
    stored = load_file(tmp_path / "model" / "model.safetensors")
    assert sum(t.numel() for t in stored.values()) == model.config.parameters()
    table = model.embedding.weight
    assert [key for key, t in stored.items() if t.shape == table.shape] == ["embedding.weight"]


def test_a_bundle_is_three_files_and_none_is_a_pickle(saved: Path) -> None:
    assert {path.name for path in saved.iterdir()} == FILES
    for path in saved.iterdir():
        assert path.read_bytes()[:1] != b"\x80", f"{path.name} starts like a pickle"
        assert path.read_bytes()[:2] != b"PK", f"{path.name} starts like a zip of pickles"


def test_the_manifest_says_the_size_and_hash_of_every_other_file(saved: Path) -> None:
    written = json.loads((saved / "MANIFEST.json").read_text())
    seal(saved)
    assert json.loads((saved / "MANIFEST.json").read_text()) == written
    assert verify(saved) == written


def test_saving_twice_replaces_the_first(saved: Path) -> None:
    second = model_of("classify-tiny", seed=5)
    Bundle(second).save(saved)
    assert_same_weights(Bundle.load(saved).model, second)
    assert beside(saved) == []


def test_what_is_written_beside_a_model_is_part_of_the_bundle(saved: Path) -> None:
    def write(staging: Path) -> None:
        (staging / "recipe.toml").write_text("steps = 5")

    Bundle(model_of(seed=5)).save(saved, write_extras=write)
    assert verify(saved)["files"].keys() == (FILES - {"MANIFEST.json"}) | {"recipe.toml"}
    (saved / "recipe.toml").write_text("steps = 6")
    assert "recipe.toml" in message(saved)


def test_if_what_belongs_beside_it_cannot_be_written_the_old_bundle_stays(saved: Path) -> None:
    with pytest.raises(RuntimeError, match="boom"):
        Bundle(model_of(seed=5)).save(saved, write_extras=half_written(RuntimeError("boom")))
    assert_same_weights(Bundle.load(saved).model, model_of())
    assert beside(saved) == []


def test_a_run_becomes_a_bundle_and_what_moves_is_kept(tmp_path: Path) -> None:
    place = tmp_path / "run"
    (place / "checkpoints" / "step-1").mkdir(parents=True)
    (place / "notes.txt").write_text("old")
    with pytest.raises(BundleError, match="holds other files"):
        Bundle(model_of()).save(place, carry_over=("checkpoints",))
    Bundle(model_of()).save(place, may_replace=("notes.txt",), carry_over=("checkpoints",))
    assert {path.name for path in place.iterdir()} == FILES | {"checkpoints"}
    assert (place / "checkpoints" / "step-1").is_dir()
    Bundle.load(place)


@pytest.mark.parametrize("limit", [2_000, 100_000])
def test_weights_that_find_no_room_are_one_line_and_the_old_bundle_stays(
    limit: int, saved: Path
) -> None:
    """A real refusal by the system in the middle of a file, as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, before[1]))
    try:
        with pytest.raises(BundleError, match=f"cannot write {saved}: .*File too large"):
            Bundle(model_of(seed=5)).save(saved)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert_same_weights(Bundle.load(saved).model, model_of())
    assert beside(saved) == []


def test_an_empty_directory_may_become_a_bundle(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    Bundle(model_of()).save(tmp_path / "model")
    Bundle.load(tmp_path / "model")


def test_the_way_to_a_bundle_is_made(tmp_path: Path) -> None:
    Bundle(model_of()).save(tmp_path / "runs" / "today" / "model")
    Bundle.load(str(tmp_path / "runs" / "today" / "model"))


def test_a_loaded_model_does_not_change_when_its_directory_is_replaced(saved: Path) -> None:
    loaded = Bundle.load(saved).model
    Bundle(model_of(seed=5)).save(saved)
    assert_same_weights(loaded, model_of())


def test_changing_a_loaded_model_does_not_change_its_file(saved: Path) -> None:
    with torch.no_grad():
        for parameter in Bundle.load(saved).model.parameters():
            parameter.zero_()
    assert_same_weights(Bundle.load(saved).model, model_of())


@pytest.mark.parametrize("place", ["model", "./model", "there/../model"])
def test_a_place_may_be_given_relative_to_where_one_is(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "there").mkdir()
    monkeypatch.chdir(tmp_path)
    Bundle(model_of()).save(place)
    Bundle.load(place)
    assert beside(tmp_path / "model") == ["there"]


def test_a_bundle_can_be_loaded_from_within(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(saved)
    Bundle.load(".")


def test_saving_into_the_directory_one_is_in_works_or_says_why_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    with contextlib.suppress(BundleError):
        Bundle(model_of()).save(".")
        Bundle.load(tmp_path / "here")


@pytest.fixture
def careful_umask() -> Iterator[None]:
    """A user whose files nobody else may read unless a program says so."""
    before = os.umask(0o077)
    yield
    os.umask(before)


@pytest.mark.usefixtures("careful_umask")
def test_everyone_may_read_a_bundle(tmp_path: Path) -> None:
    place = tmp_path / "model"
    Bundle(model_of()).save(place)
    modes = {path.name: oct(path.stat().st_mode & 0o777) for path in place.iterdir()}
    assert modes == dict.fromkeys(FILES, "0o644")
    assert oct(place.stat().st_mode & 0o777) == "0o755"


def half_written(error: BaseException) -> Callable[[Path], None]:
    def write(staging: Path) -> None:
        (staging / "config.json").write_text("{")
        raise error

    return write


@pytest.mark.parametrize("error", [RuntimeError("boom"), KeyboardInterrupt(), MemoryError()])
def test_a_crash_while_writing_leaves_the_old_bundle(error: BaseException, saved: Path) -> None:
    with pytest.raises(type(error)):
        publish(saved, half_written(error))
    assert_same_weights(Bundle.load(saved).model, model_of())
    assert beside(saved) == []


def test_a_crash_while_writing_the_first_time_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="boom"):
        publish(tmp_path / "model", half_written(RuntimeError("boom")))
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_is_one_line_that_names_the_bundle(saved: Path) -> None:
    with pytest.raises(BundleError, match=f"cannot write {saved}: No space left on device"):
        publish(saved, half_written(OSError(28, "No space left on device")))
    assert_same_weights(Bundle.load(saved).model, model_of())
    assert beside(saved) == []


def test_what_was_moved_aside_is_put_back(saved: Path) -> None:
    saved.rename(saved.with_name(".model.old"))
    assert ".model.old" in message(saved)
    recover(saved)
    assert_same_weights(Bundle.load(saved).model, model_of())
    assert beside(saved) == []


def test_the_next_save_finds_what_was_moved_aside(saved: Path) -> None:
    saved.rename(saved.with_name(".model.old"))
    with pytest.raises(RuntimeError, match="boom"):
        publish(saved, half_written(RuntimeError("boom")))
    assert_same_weights(Bundle.load(saved).model, model_of())


def test_recovering_a_healthy_bundle_changes_nothing(saved: Path) -> None:
    recover(saved)
    assert_same_weights(Bundle.load(saved).model, model_of())


def test_the_old_bundle_once_replaced_is_deleted_by_recover(saved: Path) -> None:
    Bundle(model_of(seed=5)).save(saved.with_name(".model.old"))
    recover(saved)
    assert_same_weights(Bundle.load(saved).model, model_of())
    assert beside(saved) == []


def test_the_only_whole_copy_is_not_deleted_for_an_empty_directory(saved: Path) -> None:
    saved.rename(saved.with_name(".model.old"))
    saved.mkdir()  # a script that makes its output directory before it starts
    with pytest.raises(RuntimeError, match="boom"):
        publish(saved, half_written(RuntimeError("boom")))
    whole = [path for path in (saved, saved.with_name(".model.old")) if path.is_dir()]
    assert any((path / "MANIFEST.json").is_file() for path in whole), "the old bundle is lost"


def test_the_only_whole_copy_is_not_deleted_for_a_file_in_the_way(saved: Path) -> None:
    aside = saved.with_name(".model.old")
    saved.rename(aside)
    saved.write_text("notes")
    with pytest.raises(BundleError, match="not a directory"):
        Bundle(model_of(seed=5)).save(saved)
    assert saved.read_text() == "notes"
    assert_same_weights(Bundle.load(aside).model, model_of())


def test_everything_is_on_the_disk_before_the_new_bundle_takes_its_place(
    saved: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[int | str] = []  # inodes flushed, and names renamed to, in order
    fsync, rename = os.fsync, os.rename

    def note_fsync(descriptor: int) -> None:
        fsync(descriptor)
        done.append(os.fstat(descriptor).st_ino)

    def note_rename(source: Path, target: Path) -> None:
        rename(source, target)
        done.append(Path(target).name)

    monkeypatch.setattr(os, "fsync", note_fsync)
    monkeypatch.setattr(os, "rename", note_rename)
    Bundle(model_of(seed=5)).save(saved)

    before, after = done[: done.index("model")], done[done.index("model") :]
    for path in (*saved.iterdir(), saved):
        assert path.stat().st_ino in before, f"{path.name} was not flushed before the rename"
    assert saved.parent.stat().st_ino in after


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[dict[str, list[str]]]]:
    """What real processes left behind that were killed while they saved."""
    if not hasattr(os, "fork"):
        pytest.skip("needs fork and SIGKILL")
    program = Path(__file__).with_name("killed_saves.py")
    place = tmp_path_factory.mktemp("killed")
    run = subprocess.run(
        [sys.executable, program, place], capture_output=True, text=True, timeout=120, check=False
    )
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout)


def test_a_save_killed_before_any_of_its_steps_leaves_the_old_or_the_new_bundle(
    killed: dict[str, list[dict[str, list[str]]]],
) -> None:
    found = [look["found"] for look in killed["steps"]]
    assert len(found) > 10, "a save has more steps than that"
    turn = found.index(["new"])
    assert found[:turn] == [["old"]] * turn
    assert found[turn:] == [["new"]] * (len(found) - turn)


def test_a_save_killed_at_any_moment_leaves_the_old_or_the_new_bundle(
    killed: dict[str, list[dict[str, list[str]]]],
) -> None:
    assert killed["moments"]
    assert all(look["found"] in (["old"], ["new"]) for look in killed["moments"])


def test_no_old_bundle_lies_about_after_the_save_that_follows_a_killed_one(
    killed: dict[str, list[dict[str, list[str]]]],
) -> None:
    looks = killed["steps"] + killed["moments"]
    assert not any(".model.old" in look["beside"] for look in looks)


def test_no_staging_directory_lies_about_after_the_save_that_follows_a_killed_one(
    killed: dict[str, list[dict[str, list[str]]]],
) -> None:
    assert killed["steps"][-1]["beside"] == []
    assert killed["moments"][-1]["beside"] == []


@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
def test_a_truncated_file_is_named_with_both_sizes(name: str, saved: Path) -> None:
    content = (saved / name).read_bytes()
    (saved / name).write_bytes(content[:-17])
    says = message(saved)
    assert f"{saved / name} has {len(content) - 17} bytes" in says
    assert str(len(content)) in says


@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
def test_one_flipped_bit_is_noticed_and_the_file_named(name: str, saved: Path) -> None:
    content = bytearray((saved / name).read_bytes())
    content[len(content) // 2] ^= 0b100
    (saved / name).write_bytes(content)
    assert f"{saved / name} does not have the sha256" in message(saved)


@pytest.mark.parametrize("name", sorted(FILES))
def test_a_missing_file_is_named(name: str, saved: Path) -> None:
    (saved / name).unlink()
    said = message(saved)
    assert str(saved) in said
    assert name in said


def change_tensors(place: Path, change: Callable[[dict[str, Tensor]], object]) -> None:
    weights = load_file(place / "model.safetensors")
    change(weights)
    save_file(weights, place / "model.safetensors")
    seal(place)


def test_a_missing_tensor_is_named_with_its_shape(saved: Path) -> None:
    change_tensors(saved, lambda weights: weights.pop("decoder.1.attention.key.weight"))
    says = message(saved)
    assert f"{saved / 'model.safetensors'} lacks" in says
    assert "decoder.1.attention.key.weight (64, 64)" in says


def test_a_tensor_too_many_is_named(saved: Path) -> None:
    change_tensors(saved, lambda weights: weights.update(stray=torch.zeros(3)))
    says = message(saved)
    assert str(saved / "model.safetensors") in says
    assert "stray" in says


def test_a_tensor_of_another_shape_is_named_with_both_shapes(saved: Path) -> None:
    name = "decoder.1.attention.key.weight"
    change_tensors(saved, lambda weights: weights.update({name: torch.zeros(64, 63)}))
    says = message(saved)
    assert f"{saved / 'model.safetensors'}: {name} has shape (64, 63)" in says
    assert "(64, 64)" in says


def test_a_tensor_of_whole_numbers_is_named(saved: Path) -> None:
    name = "decoder.1.attention.key.weight"
    whole = torch.zeros(64, 64, dtype=torch.int64)
    change_tensors(saved, lambda weights: weights.update({name: whole}))
    says = message(saved)
    assert str(saved / "model.safetensors") in says
    assert name in says


def test_weights_of_another_model_are_refused(saved: Path, tmp_path: Path) -> None:
    Bundle(model_of("classify-tiny")).save(tmp_path / "other")
    (saved / "model.safetensors").write_bytes((tmp_path / "other/model.safetensors").read_bytes())
    seal(saved)
    assert str(saved / "model.safetensors") in message(saved)


def test_a_file_that_is_no_safetensors_is_named(saved: Path) -> None:
    (saved / "model.safetensors").write_bytes(b"PK\x03\x04 not weights at all")
    seal(saved)
    said = message(saved)
    assert str(saved / "model.safetensors") in said
    assert "not a safetensors file" in said


@pytest.mark.parametrize("name", ["../x", "/etc/hostname", "sub/x", "..", "."])
def test_a_manifest_that_points_out_of_its_bundle_is_refused(name: str, saved: Path) -> None:
    (saved.parent / "x").write_bytes(b"")
    facts = {"bytes": 0, "sha256": hashlib.sha256(b"").hexdigest()}
    manifest = json.loads((saved / "MANIFEST.json").read_text())
    manifest["files"][name] = facts
    (saved / "MANIFEST.json").write_text(json.dumps(manifest))
    assert name in message(saved)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"\xff\xfe",
        b"[]",
        b"{}",
        b'{"files": []}',
        b'{"files": {}}',
        b'{"files": {"config.json": 3}}',
        b'{"files": {"config.json": {}}}',
        b'{"files": {"config.json": {"bytes": "' + b"\\n" * 9999 + b'"}}}',
        b'{"files": {"\\ud800": {}}}',
        b'{"files": {}, "files": {}}',
        b'{"format": ' + b"9" * 4000 + b"}",
        b'{"files": ' + b"[" * 100_000,
    ],
)
def test_a_manifest_that_is_none_is_named(content: bytes, saved: Path) -> None:
    (saved / "MANIFEST.json").write_bytes(content)
    assert str(saved) in message(saved)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('"kind": "decoder_only",\n  "bogus": 1', "bogus"),
        ('"kind": "decoder_sideways"', "decoder_sideways"),
        ('"kind": decoder_only', "JSON"),
    ],
    ids=["unknown field", "unknown family", "no JSON"],
)
def test_a_config_that_cannot_be_built_names_the_file_and_the_field(
    text: str, says: str, saved: Path
) -> None:
    config = (saved / "config.json").read_text()
    (saved / "config.json").write_text(config.replace('"kind": "decoder_only"', text, 1))
    seal(saved)
    problem = message(saved, (ConfigError, BundleError))
    assert says in problem
    assert "config.json" in problem
    assert len(problem) < 600, "a sentence, not the whole file"


def test_a_place_that_is_not_there_or_no_directory_is_named(saved: Path, tmp_path: Path) -> None:
    assert str(tmp_path / "nowhere") in message(tmp_path / "nowhere")
    assert str(saved / "config.json") in message(saved / "config.json")


def test_a_directory_that_is_no_bundle_is_named(tmp_path: Path) -> None:
    assert str(tmp_path) in message(tmp_path)


def test_a_directory_with_other_files_is_not_replaced(tmp_path: Path) -> None:
    place = tmp_path / "thesis"
    place.mkdir()
    (place / "chapter.txt").write_text("years of work")
    with pytest.raises(BundleError, match=f"{place} holds other files"):
        Bundle(model_of()).save(place)
    assert (place / "chapter.txt").read_text() == "years of work"
    assert beside(place) == []


def test_a_file_is_not_replaced(tmp_path: Path) -> None:
    place = tmp_path / "thesis.txt"
    place.write_text("years of work")
    with pytest.raises(BundleError, match=f"{place} is not a directory"):
        Bundle(model_of()).save(place)
    assert place.read_text() == "years of work"


def test_a_link_is_not_replaced(saved: Path, tmp_path: Path) -> None:
    link = tmp_path / "latest"
    link.symlink_to(saved)
    with pytest.raises(BundleError, match=f"{link} is not a directory"):
        Bundle(model_of(seed=5)).save(link)
    assert link.is_symlink()
    assert_same_weights(Bundle.load(link).model, model_of())


def test_a_place_below_a_file_cannot_be_written_and_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(BundleError, match=f"{tmp_path / 'file' / 'model'}"):
        Bundle(model_of()).save(tmp_path / "file" / "model")


def test_a_path_with_dots_is_the_directory_it_means(saved: Path) -> None:
    again = saved / ".." / saved.name
    Bundle(Bundle.load(saved).model).save(again)
    assert Bundle.load(saved).model is not None
    assert [path.name for path in saved.parent.iterdir()] == [saved.name]


def test_the_root_is_no_place_for_a_bundle(saved: Path) -> None:
    with pytest.raises(BundleError, match="give a directory with a name"):
        Bundle(Bundle.load(saved).model).save("/")


@pytest.mark.parametrize("name", TOKENIZER_COMPANIONS)
def test_what_would_be_read_is_refused_if_the_manifest_does_not_list_it(
    name: str, tmp_path: Path
) -> None:
    place = tmp_path / "model"
    tokenizer = Tokenizer.train("bytes", ["a"], 300)
    Bundle(model_of(), tokenizer).save(place)
    (place / "README.md").write_text("# My model")
    (place / ".gitattributes").touch()
    assert Bundle.load(place).tokenizer.special_tokens == tokenizer.special_tokens  # type: ignore[union-attr]
    other = dict.fromkeys(("pad", "unknown", "start", "end", "mask"), "<mask>")
    (place / name).write_text(
        json.dumps(other) if name.endswith(("tokens.json", "marks.json")) else tokenizer.to_json()
    )
    assert f"{name} is not part of the bundle: its manifest does not list it" in message(place)
    (place / name).unlink()
    (place / name).symlink_to("nowhere")
    assert "is not part of the bundle" in message(place)


@pytest.mark.parametrize("content", ['{"files": 5}', "{}"])
def test_a_damaged_manifest_is_named_when_saving_over_it(saved: Path, content: str) -> None:
    model = Bundle.load(saved).model
    (saved / "MANIFEST.json").write_text(content)
    with pytest.raises(BundleError, match=r"MANIFEST.json lists no files; the bundle is damaged"):
        Bundle(model).save(saved)


def test_a_file_of_somebody_else_is_not_deleted(saved: Path) -> None:
    model = Bundle.load(saved).model
    (saved / "thesis.txt").write_text("years of work")
    with pytest.raises(BundleError, match=r"holds thesis.txt"):
        Bundle(model).save(saved)
    assert (saved / "thesis.txt").read_text() == "years of work"


def test_a_newer_format_is_refused(saved: Path) -> None:
    manifest = json.loads((saved / "MANIFEST.json").read_text())
    (saved / "MANIFEST.json").write_text(json.dumps({**manifest, "format": 2}))
    assert "format 2" in message(saved)


def test_a_device_that_does_not_exist_is_refused(saved: Path) -> None:
    with pytest.raises(UsageError, match="unknown device"):
        Bundle.load(saved, device="gpu")
