"""Spliced texts: made of two others, other ones in each epoch, the same ones again on resuming."""

from pathlib import Path

import numpy as np
import pytest
import torch
from tests.training.tiny_runs import CPU, args_for, data_for, fingerprint, start, trained, whole

from qkv.errors import ConfigError
from qkv.training.launch import reopen
from qkv.training.prepare import TrainArgs, prepare
from qkv.training.run import Evaluation
from qkv.training.tasks.classify_data import ClassifyData

TAUGHT = {"task": {"distillation_weight": 0.5, "cutmix": 1.5}}


def args(folder: Path, **changes: object) -> TrainArgs:
    return args_for("classify", data_for("classify", folder), 13, settings=TAUGHT, **changes)


def data_module(folder: Path, **changes: object) -> ClassifyData:
    found = prepare(args(folder, **changes)).data_module
    assert isinstance(found, ClassifyData)
    return found


def test_each_begins_as_one_text_and_ends_as_another(tmp_path: Path) -> None:
    taught = data_module(tmp_path)
    assert taught.cutmix is not None
    texts = [example.text.split() for example in taught.split.train]
    made = [text.split() for text in taught.cutmix.texts(epoch=2)]
    assert len(made) == round(1.5 * len(texts))
    for words in made:
        assert any(
            words[:cut] == one[:cut] and words[cut:] == other[len(other) - len(words) + cut :]
            for cut in range(1, len(words) + 1)
            for one in texts
            for other in texts
            if cut <= len(one) and len(words) - cut <= len(other)
        )


def test_every_epoch_reads_each_text_once_beside_texts_of_its_own(tmp_path: Path) -> None:
    taught = data_module(tmp_path)
    assert taught.cutmix is not None
    own, new = len(taught.train), taught.cutmix.count
    assert ("CutMix texts", f"{new} per epoch") in taught.facts
    for epoch in (0, 3):
        numbers = np.sort(np.concatenate(taught.batch_indices(epoch)))
        assert numbers.tolist() == [*range(own + new)]
    assert taught.cutmix.texts(0) == taught.cutmix.texts(0) != taught.cutmix.texts(3)


def test_a_batch_is_the_same_whatever_was_asked_before(tmp_path: Path) -> None:
    one, other = data_module(tmp_path), data_module(tmp_path)
    numbers = max(one.batch_indices(4), key=len)
    other.batch_indices(0)
    first, second = (
        some.batch(numbers, np.random.default_rng(0), epoch=4) for some in (one, other)
    )
    assert torch.equal(first.texts.ids, second.texts.ids)  # type: ignore[union-attr]
    assert first.probs is not None
    assert second.probs is not None
    assert torch.equal(first.probs, second.probs)
    assert len(first.probs) == len(numbers)
    torch.testing.assert_close(first.probs.sum(dim=1), torch.ones(len(numbers)))


def test_half_of_a_texts_target_is_its_label(tmp_path: Path) -> None:
    taught = data_module(tmp_path)
    assert taught.probs is not None
    own = taught.probs.gather(1, taught.labels[:, None])
    assert float(own.min()) >= 0.5
    assert float(own.max()) < 1.0


def test_stopped_and_resumed_it_ends_with_the_same_bits(tmp_path: Path) -> None:
    expected = fingerprint(whole(tmp_path / "whole", args(tmp_path)))
    stopped = start(tmp_path / "stopped", args(tmp_path))
    for event in stopped.events():
        if not isinstance(event, Evaluation) and event.number == 7:
            break
    stopped.save()
    again = reopen(tmp_path / "stopped", CPU)
    again.resume(print)
    for _ in again.events():
        pass
    assert stopped.progress.step == 7
    assert fingerprint(again) == expected


def test_a_frozen_encoder_has_no_new_texts_to_read(tmp_path: Path) -> None:
    plain = args_for("classify", data_for("classify", tmp_path / "plain"), 2)
    origin = trained(tmp_path / "origin", plain)
    with pytest.raises(ConfigError, match=r"set task\.cutmix=0"):
        data_module(tmp_path, from_=origin, vocab_size=None, freeze=True)
