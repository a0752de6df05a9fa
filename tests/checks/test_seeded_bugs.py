"""Every bug that was planted is found by the check that should find it, at the right place."""

from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.checks.sound_models import CONFIGS, READER, assert_red, engine, result_of, sound
from tests.kernels.native import needs_int8
from tokenizers import Tokenizer as Backend
from tokenizers import normalizers
from torch import Tensor

import qkv.bundle.bundle as bundle_file
import qkv.engine.optimized.quantized as int8_file
from qkv.attention import LayerCache, Mask, MaskPart, RaggedCache, Tile, attend
from qkv.attention.mask import Documents, Packed, Padding
from qkv.bundle import Bundle
from qkv.checks import CHECKS, check
from qkv.checks.attention_checks import FUSED, SOFTMAX
from qkv.checks.batch_checks import BATCH, CACHED
from qkv.checks.gradient_checks import ACCUMULATED, GRADIENTS
from qkv.checks.masking import CAUSAL, PACKED, PADDING
from qkv.checks.optimized import INT8, OPTIMIZED
from qkv.checks.storage import ROUND_TRIP, SAVED
from qkv.engine.batching import PaddedBatch
from qkv.model import Layers
from qkv.model.view import padding_mask
from qkv.text import Tokenizer
from qkv.training.tasks.classify import ClassifyTask
from qkv.training.tasks.language import LanguageTask
from qkv.training.tasks.translate import TranslateTask
from qkv.training.trainer import Trainer

Patch = pytest.MonkeyPatch


@pytest.mark.parametrize("name", CONFIGS)
def test_without_a_bug_all_is_well(name: str) -> None:
    report = check(engine(sound(name)), quick=True)
    assert report.ok, report.first_failure
    assert {result.name for result in report.checks} == {each.name for each in CHECKS}


# What a token may see


@dataclass(frozen=True)
class OneTooFar(MaskPart):
    def allowed(self, tile: Tile) -> Tensor:
        return tile.columns() <= tile.rows() + 1


@pytest.mark.parametrize("name", ["gpt", "llama", "translator"])
def test_a_mask_shifted_by_one_is_a_leak_in_the_first_layer(name: str, monkeypatch: Patch) -> None:
    monkeypatch.setattr(Mask, "causal", staticmethod(lambda: Mask((OneTooFar(),))))
    result = assert_red(CAUSAL, sound(name), "decoder.0.attention.core")
    assert "moved when position" in result.remark


def test_a_single_layer_without_its_mask_is_named() -> None:
    model = sound("llama")
    attention = model.get_submodule("decoder.1.attention")
    plain = attention.forward
    attention.forward = lambda x, view: plain(x, replace(view, mask=Mask.full()))
    assert_red(CAUSAL, model, "decoder.1.attention.core")


def test_a_part_that_mixes_in_the_mean_of_the_text_leaks_the_future() -> None:
    model = sound("gpt")
    part = model.get_submodule("decoder.2.feed_forward")
    plain = part.forward
    part.forward = lambda x: plain(x) + 0.1 * x.mean(dim=1, keepdim=True)
    assert_red(CAUSAL, model, "decoder.2.feed_forward")
    assert_red(BATCH, model, "decoder.2.feed_forward")


def test_a_token_that_is_copied_from_the_future_leaks_at_its_own_position(
    monkeypatch: Patch,
) -> None:
    model = sound("gpt")
    table = model.embedding
    plain = table.forward
    table.forward = lambda ids: plain(torch.cat((ids[:, 1:], ids[:, -1:]), dim=1))
    result = assert_red(CAUSAL, model, "embedding, text 1")
    *_, position = result.location.split()
    assert result.remark == (f"position {position} moved when position {int(position) + 1} changed")


# Padding


def test_padding_hidden_from_the_wrong_side_shows_in_the_first_layer(monkeypatch: Patch) -> None:
    def wrong(self: Padding, tile: Tile) -> Tensor:
        return tile.columns() >= tile.keys.stop - self.lengths[:, None, None, None]

    monkeypatch.setattr(Padding, "allowed", wrong)
    assert_red(PADDING, sound("vectors"), "encoder.0.attention.core", "text 1")
    assert_red(PADDING, sound("translator"), "encoder.0.attention.core", "text 1")


def test_texts_padded_on_the_wrong_side_are_told_from_the_embedding_on(monkeypatch: Patch) -> None:
    right = PaddedBatch.of.__func__  # type: ignore[attr-defined]

    def left(cls: type[PaddedBatch], texts: Any, pad: int) -> PaddedBatch:
        batch = right(cls, texts, pad)
        ids = [
            row.roll(batch.ids.shape[1] - len(t)) for row, t in zip(batch.ids, texts, strict=True)
        ]
        return replace(batch, ids=torch.stack(ids))

    monkeypatch.setattr(PaddedBatch, "of", classmethod(left))
    assert_red(BATCH, sound("masked"), "embedding", "text 2 of 3", "position 0")


def test_a_source_whose_padding_is_read_shows_in_the_first_cross_attention(
    monkeypatch: Patch,
) -> None:
    def wrong(ids: Tensor, lengths: Tensor | None, mask: Mask | None = None) -> Mask:
        source = not ids.is_floating_point()
        return padding_mask(ids, lengths, mask) if source else Mask.full()

    monkeypatch.setattr("qkv.model.encoder_decoder.padding_mask", wrong)
    assert_red(PADDING, sound("translator"), "decoder.0.cross.core")


def test_pooling_over_padding_shows_in_the_output(monkeypatch: Patch) -> None:
    model = sound("vectors")
    monkeypatch.setattr(
        "qkv.model.encoder.real_lengths", lambda ids, lengths: torch.full((len(ids),), ids.shape[1])
    )
    assert_red(PADDING, model, "output", "text 1")


# The cache


@pytest.mark.parametrize(
    ("name", "location"),
    [
        ("gpt", "decoder.position"),
        ("translator", "decoder.position"),
        ("llama", "decoder.0.attention.query_rotated"),
    ],
)
def test_a_position_off_by_one_in_the_cache_is_named(
    name: str, location: str, monkeypatch: Patch
) -> None:
    plain = Layers._positions

    def late(self: Layers, x: Tensor, explicit: Tensor | None, start: int) -> Tensor:
        positions = plain(self, x, explicit, start)
        return positions + 1 if start else positions

    monkeypatch.setattr(Layers, "_positions", late)
    assert_red(CACHED, sound(name), location, "token by token", "position 1")
    assert result_of(CAUSAL, sound(name)).ok


def test_a_key_that_overwrites_another_in_the_cache_is_named(monkeypatch: Patch) -> None:
    plain = LayerCache.append

    def wrong(self: LayerCache, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        keys, values = plain(self, k, v)
        if self.length > 7:
            self.k[:, :, 3] = k[:, :, -1]
        return keys, values

    monkeypatch.setattr(LayerCache, "append", wrong)
    assert_red(CACHED, sound("llama"), "decoder.0.attention.key_rotated", "position 3")


@pytest.mark.parametrize("name", ["gpt", "translator"])
def test_a_cache_that_forgets_to_follow_its_beams_is_named(name: str, monkeypatch: Patch) -> None:
    monkeypatch.setattr(LayerCache, "reorder", lambda self, rows: None)
    assert_red(CACHED, sound(name), "decoder.0.attention.core", "as a beam")


def test_the_short_way_of_the_twin_is_checked_too(monkeypatch: Patch) -> None:
    monkeypatch.setattr(
        "qkv.engine.optimized.decode_step.LayerStep.feed_forward",
        lambda line, x: x + 0.1 * x.mean(),
    )
    # The first layer is computed wrongly, so the second keeps wrong keys: after 16 tokens.
    location = "decoder.1.attention.key_rotated"
    assert_red(CACHED, sound("llama"), location, "in the optimized model", "position 16")


def test_rows_of_a_batch_at_wrong_positions_are_told(monkeypatch: Patch) -> None:
    plain = RaggedCache.prepare

    def late(self: RaggedCache, new: int = 1) -> tuple[Tensor, Mask]:
        positions, mask = plain(self, new)
        return positions + 1, mask

    monkeypatch.setattr(RaggedCache, "prepare", late)
    assert_red(BATCH, sound("gpt"), "decoder.position", "next token 1 of 3")


# Packing


def test_packed_texts_that_see_their_neighbours_are_told(monkeypatch: Patch) -> None:
    def as_one(self: Mask) -> tuple[Packed, Mask] | None:
        packed = [part for part in self.parts if isinstance(part, Packed)]
        return (Packed((sum(packed[0].lengths),)), Mask()) if packed else None

    monkeypatch.setattr(Mask, "packing", as_one)
    assert_red(PACKED, sound("vectors"), "encoder.0.attention.core", "of packed texts")


@pytest.mark.parametrize(("name", "stack"), [("gpt", "decoder"), ("masked", "encoder")])
def test_documents_that_see_each_other_are_told(name: str, stack: str, monkeypatch: Patch) -> None:
    monkeypatch.setattr(Documents, "allowed", lambda self, tile: None)
    assert_red(PACKED, sound(name), f"{stack}.0.attention.core", "of training's documents")


# Kernels


def test_a_fused_kernel_with_another_scale_is_named_with_its_layer() -> None:
    model = sound("gpt")
    mix = model.get_submodule("decoder.1.attention.core")
    plain = mix.forward
    mix.forward = lambda q, k, v, mask: (
        plain(q, k, v, mask) if mix.hook_point.has_hooks else attend(q, k, v, mask, 0.3)
    )
    assert_red(FUSED, model, "decoder.1.attention.core")
    assert result_of(SOFTMAX, model).ok


def test_rows_that_do_not_sum_to_one_are_told(monkeypatch: Patch) -> None:
    reference_file = import_module("qkv.attention.reference")  # its name is the function's too
    plain = reference_file.softmax
    monkeypatch.setattr(reference_file, "softmax", lambda scores: 1.01 * plain(scores))
    result = assert_red(SOFTMAX, sound("translator"), "encoder.0.attention.core")
    assert result.worst == pytest.approx(0.01, rel=0.01)


def test_a_kernel_that_averages_over_all_heads_is_no_reference(monkeypatch: Patch) -> None:
    monkeypatch.setattr(
        "qkv.model.attention.attend",
        lambda *args: attend(*args).mean(dim=1, keepdim=True).expand_as(args[0]),
    )
    assert_red(FUSED, sound("labels"), "encoder.0.attention.core")


# Training


@pytest.mark.parametrize(
    ("name", "task"),
    [("gpt", LanguageTask), ("labels", ClassifyTask), ("translator", TranslateTask)],
)
def test_a_mean_instead_of_a_sum_makes_parts_count_alike(
    name: str, task: type, monkeypatch: Patch
) -> None:
    plain = task.loss  # type: ignore[attr-defined]
    monkeypatch.setattr(task, "loss", lambda self, model, b: plain(self, model, b) / b.num_targets)
    assert_red(ACCUMULATED, sound(name), ".weight")


def test_a_loop_that_forgets_all_parts_but_the_last_is_told(monkeypatch: Patch) -> None:
    plain = Trainer._take_step
    monkeypatch.setattr(Trainer, "_take_step", lambda self, parts: plain(self, parts[-1:]))
    assert_red(ACCUMULATED, sound("masked"), ".weight")


def test_a_part_cut_off_from_the_loss_is_named() -> None:
    model = sound("gpt")
    part = model.get_submodule("decoder.1.feed_forward")
    plain = part.forward
    part.forward = lambda x: plain(x).detach()
    result = assert_red(GRADIENTS, model, "decoder.1.feed_forward_in.weight")
    assert result.worst == 6  # a norm and two matrices, each with a bias
    assert "6 of 52 tensors" in result.remark


def test_a_parameter_that_is_never_used_is_named() -> None:
    model = sound("llama")
    model.get_submodule("decoder.2").spare = torch.nn.Linear(5, 7)
    result = assert_red(GRADIENTS, model, "decoder.2.spare.weight")
    assert result.worst == 2


def test_biases_of_keys_are_excused_and_said_to_be() -> None:
    result = result_of(GRADIENTS, sound("gpt"))
    assert result.ok
    assert "biases of keys" in result.remark
    assert "biases of keys" not in result_of(GRADIENTS, sound("llama")).remark


# On disk


def test_a_tensor_that_is_rounded_when_it_is_saved_is_named(monkeypatch: Patch) -> None:
    plain = bundle_file.save_file

    def rounding(weights: dict[str, Tensor], *args: Any, **kwargs: Any) -> None:
        name = "decoder.1.attention.value.weight"
        plain(weights | {name: weights[name].bfloat16().float()}, *args, **kwargs)

    monkeypatch.setattr(bundle_file, "save_file", rounding)
    result = assert_red(SAVED, sound("gpt"), "decoder.1.attention.value.weight")
    assert result.worst == 1


def test_a_file_that_changes_after_it_is_saved_is_named(monkeypatch: Patch) -> None:
    plain = Bundle.save

    def damaged(self: Bundle, directory: Path) -> None:
        plain(self, directory)
        path = directory / bundle_file.WEIGHTS
        content = bytearray(path.read_bytes())
        content[-5] ^= 1
        path.write_bytes(bytes(content))

    monkeypatch.setattr(Bundle, "save", damaged)
    assert_red(SAVED, sound("gpt"), "model.safetensors")


def test_a_config_that_forgets_that_the_output_is_tied_lacks_a_tensor(monkeypatch: Patch) -> None:
    plain = bundle_file.read_config

    def untied(text: bytes) -> Any:
        return plain(text.replace(b'"tied": true', b'"tied": false'))

    monkeypatch.setattr(bundle_file, "read_config", untied)
    assert_red(SAVED, sound("gpt"), "lacks the tensor output.weight")


# Words


def test_a_tokenizer_that_drops_a_letter_is_told_with_the_first_that_is_lost() -> None:
    backend = Backend.from_str(READER.to_json())
    backend.normalizer = normalizers.Replace("d", "")
    result = result_of(ROUND_TRIP, sound("gpt"), Tokenizer(backend))
    assert not result.ok
    assert result.location == "text 1, character 25 ('d')"


def test_a_lossy_tokenizer_that_drops_a_letter_is_told_too() -> None:
    from qkv.checks.model_under_test import SAMPLE_TEXTS

    learned = Tokenizer.train("wordpiece", SAMPLE_TEXTS, 120)
    assert result_of(ROUND_TRIP, sound("gpt"), learned).ok
    backend = Backend.from_str(learned.to_json())
    dropping = normalizers.Replace("o", "")
    backend.normalizer = normalizers.Sequence([backend.normalizer, dropping])
    result = result_of(ROUND_TRIP, sound("gpt"), Tokenizer(backend))
    assert result.location.startswith("text 1, character 0 ('o')")


# The optimized model and int8


def test_a_twin_with_another_weight_is_told_with_its_layer() -> None:
    model = sound("vectors")
    loaded = engine(model)
    loaded.optimized.get_submodule("encoder.1.attention.project").weight.mul_(1.01)
    (result,) = check(loaded, quick=True, checks=[OPTIMIZED]).checks
    assert not result.ok
    assert result.location.startswith("encoder.1.attention.")


@needs_int8
def test_one_scale_for_a_whole_matrix_is_too_coarse(monkeypatch: Patch) -> None:
    model, draws = sound("vectors"), torch.Generator().manual_seed(1)
    with torch.no_grad():  # some outputs are much larger than others, as in real models
        for name, parameter in model.named_parameters():
            if parameter.dim() == 2 and "position" not in name:
                parameter[torch.rand(len(parameter), generator=draws) < 0.1] *= 30.0
    assert result_of(INT8, model).ok
    plain = int8_file.row_absmax
    monkeypatch.setattr(
        int8_file, "row_absmax", lambda rows: plain(rows).amax().repeat(len(rows), 1)
    )
    monkeypatch.setattr(int8_file, "QUANTIZE_ROWS", 10**6)
    assert_red(INT8, model, "output, text")


def test_weights_that_are_no_numbers_pass_nothing_that_compares() -> None:
    model = sound("llama")
    with torch.no_grad():
        model.get_parameter("decoder.1.attention.query.weight").fill_(torch.nan)
    report = check(engine(model), quick=True)
    red = {result.name for result in report.checks if not result.ok}
    same = {SAVED.name, ROUND_TRIP.name}
    assert red == {result.name for result in report.checks if result.applies} - same
    assert report.first_failure is not None
    assert report.first_failure.location.startswith("decoder.1.attention.query")
