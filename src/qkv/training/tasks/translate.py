"""`qkv train translate`: predict the next token of a translation, given its source."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from qkv.bundle import Bundle
from qkv.data import BadRows, Pair, built_in, read_pairs, split
from qkv.engine import PaddedBatch
from qkv.errors import DataError
from qkv.model import Fraction, Model, NonNegative, TiedLogits, Translator
from qkv.text import Tokenizer
from qkv.training.loss import IGNORED, duplicate, fused_cross_entropy, interleave
from qkv.training.optimizer import Linear, MuonAdamW, Schedule
from qkv.training.tasks.task import (
    DataConfig,
    DataModule,
    EvalResult,
    Split,
    Task,
    fingerprint,
    paths,
)

if TYPE_CHECKING:
    from qkv.training.recipe import Recipe

EVAL_BEAMS = 5


@dataclass(frozen=True)
class TranslationBatch:
    """source (B, S); decoder_input (B, T), which begins with the decoder start token; and targets
    (B, T), the next token at each position of decoder_input, IGNORED where there is none.
    """

    source: PaddedBatch
    decoder_input: PaddedBatch
    targets: Tensor

    @classmethod
    def of(
        cls,
        sources: Sequence[ArrayLike],
        targets: Sequence[ArrayLike],
        start: Sequence[int],
        end: int,
        pad: int,
    ) -> "TranslationBatch":
        """From sources with their special tokens and targets without.

        Of several start tokens only the last one predicts something that is learnt.
        """
        inputs = []
        shifted = []
        prefix = [IGNORED] * (len(start) - 1)
        for target in targets:
            inputs.append(np.concatenate([start, target]).astype(np.int64))
            shifted.append(np.concatenate([prefix, target, [end]]).astype(np.int64))
        padded = PaddedBatch.of(shifted, IGNORED)
        return cls(PaddedBatch.of(sources, pad), PaddedBatch.of(inputs, pad), padded.ids)

    @property
    def num_tokens(self) -> int:
        return self.source.tokens + self.decoder_input.tokens

    @property
    def num_targets(self) -> int:
        return int((self.targets != IGNORED).sum())

    def to(self, device: torch.device) -> "TranslationBatch":
        return TranslationBatch(
            self.source.to(device), self.decoder_input.to(device), self.targets.to(device)
        )


class TranslateTask(Task):
    """Cross-entropy of each token of the translation."""

    kind: Literal["translate"] = "translate"
    label_smoothing: Fraction = 0.1
    r_drop: NonNegative = 0.0  # weight of the KL between two dropout passes (Wu et al. 2021)

    title = "A translator"
    summary = "pairs: a table with source and target, or two parallel files"
    measures = "BLEU and chrF by sacreBLEU; copying the source"
    usage = ("qkv evaluate {0} test.tsv -o worst.tsv",)
    next_steps = (
        'qkv translate {0} "your text"',
        'qkv explain "your text" --model {0} --why',
    )
    columns = ("source", "target")
    ranks_examples = True
    synthetic_corpus = True
    architecture = "encoder_decoder"
    presets = "translate"
    supports_bpe_dropout = True
    supports_bidirectional = True
    max_batch = 3000
    max_steps = 6000
    epochs = 20
    ema = 0.996

    def loss(self, model: Translator, batch: TranslationBatch) -> Tensor:
        assert isinstance(model.output, TiedLogits)
        source = batch.source.ids
        lengths = batch.source.lengths
        decoder_input = batch.decoder_input.ids
        decoder_lengths = batch.decoder_input.lengths
        targets = batch.targets.flatten()
        if self.r_drop:
            source = torch.cat((source, source))
            decoder_input = torch.cat((decoder_input, decoder_input))
            lengths = duplicate(lengths)
            decoder_lengths = duplicate(decoder_lengths)
        # Padding of the decoder input comes after all real tokens, where no causal mask looks.
        memory = model.encode(source, lengths)
        states = model.states(decoder_input, memory, lengths, read=decoder_lengths).flatten(0, 1)
        if self.r_drop:
            states = interleave(states)
            targets = targets.repeat_interleave(2)
        lazy = model.output.lazy(states, model.embedding.weight)
        return fused_cross_entropy(lazy, targets, self.label_smoothing, r_drop=self.r_drop)

    @classmethod
    def load(cls, data: DataConfig, seed: int) -> Split[Pair]:
        bad_rows = BadRows(data.skip_bad)
        pairs = _read(data, bad_rows)
        everything = pairs
        if data.validation:
            train = pairs
            validation = validation_pairs(data, bad_rows)
            everything = pairs + validation
        else:
            train, validation = split(pairs, seed, data.validation_fraction)
        if data.bidirectional:
            train = _in_both_directions(train)
            validation = _in_both_directions(validation)
            everything = _in_both_directions(everything)
        sides = (side for pair in everything for side in (pair.source, pair.target))
        return Split(train, validation, fingerprint(sides), tuple(bad_rows.remarks()))

    @classmethod
    def texts(cls, split: Split[Pair]) -> Iterable[str]:
        return (side for pair in split.train for side in (pair.source, pair.target))

    @classmethod
    def default_optimizer(cls) -> MuonAdamW:
        return MuonAdamW(matrix_lr=0.02, lr=6e-3, beta2=0.98)

    @classmethod
    def default_schedule(cls) -> Schedule:
        return Linear(hold=0.3)

    def data_module(self, split: Split[Pair], tokenizer: Tokenizer, recipe: "Recipe") -> DataModule:
        from qkv.training.tasks.translate_data import TranslateData

        return TranslateData(split, tokenizer, recipe)

    @classmethod
    def matches(cls, model: Model) -> bool:
        return isinstance(model, Translator)

    @classmethod
    def evaluate(cls, bundle: Bundle, data: DataConfig, recipe: "Recipe | None") -> EvalResult:
        from qkv.training.tasks.translate_data import evaluate_translations

        assert isinstance(bundle.model, Translator)
        assert bundle.tokenizer is not None
        bad_rows = BadRows(data.skip_bad)
        pairs = _read(data, bad_rows)
        result = evaluate_translations(bundle.model, bundle.tokenizer, pairs, EVAL_BEAMS)
        return result.with_remarks(bad_rows.remarks())


def validation_pairs(data: DataConfig, bad_rows: BadRows) -> list[Pair]:
    """The pairs of `validation`: tables with the same columns, or two more parallel files."""
    if data.files:
        return read_pairs(paths(data.validation), data.source, data.target, bad_rows)
    if len(data.validation) != 2:
        raise DataError(
            "parallel files are validated with two more: pass a source and a target as "
            f"validation=, not {len(data.validation)} files"
        )
    source, target = data.validation
    return read_pairs([], source, target, bad_rows)


def _in_both_directions(pairs: Sequence[Pair]) -> list[Pair]:
    """Each pair, followed by the same pair with source and target swapped."""
    result = []
    for pair in pairs:
        result.append(pair)
        result.append(Pair(pair.target, pair.source))
    return result


def _read(data: DataConfig, bad_rows: BadRows) -> list[Pair]:
    if not data.files and data.source is None and data.target is None:
        return built_in("translate")
    return read_pairs(paths(data.files), data.source, data.target, bad_rows)
