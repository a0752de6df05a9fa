"""Batches of sentence pairs, and translations scored with BLEU and chrF."""

import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from qkv.bundle import AlignmentHeads
from qkv.data import BpeDropoutTexts, Pair, TokenizedTexts, encode, length_batches
from qkv.engine import inference
from qkv.engine.beam import beam_search
from qkv.engine.translate import Sentence, TranslationTemplate, choose_alignment
from qkv.errors import DataError
from qkv.metrics import score_translations, sentence_chrf
from qkv.model import EncoderDecoder, Translator
from qkv.report import Table
from qkv.text import Tokenizer
from qkv.training.tasks.encoded_texts import (
    bpe_dropout_remarks,
    data_facts,
    leakage_remarks,
    truncation_remarks,
)
from qkv.training.tasks.task import (
    DataModule,
    EvalResult,
    Ids,
    Metric,
    Predictions,
    Split,
    cache_key,
    until,
)
from qkv.training.tasks.translate import EVAL_BEAMS, TranslateTask, TranslationBatch

if TYPE_CHECKING:
    from qkv.training.recipe import Recipe

MAX_VALIDATION_PAIRS = 256  # translated at each evaluation
MAX_SAMPLES = 8  # translations in the report
MAX_ALIGNED_PAIRS = 64  # to choose the alignment from
FIRST_CHUNK = 4  # sentences translated before the first look at the clock


class TruncatingLayout:
    """Adds the special tokens of sources and targets as in inference, but truncates sources."""

    def __init__(self, tokenizer: Tokenizer, config: EncoderDecoder) -> None:
        self.tokenizer = tokenizer
        self.layout = TranslationTemplate.of(tokenizer, config)
        self.start = self.layout.target_prefix
        self.end = self.layout.eos_id
        self.forbidden = self.layout.suppressed_ids
        self.max_source = self.layout.max_source_tokens
        # How many special tokens a source and a target have.
        self.counts: Ids = np.array([len(self.layout.wrap_source(())), len(self.start)])

    def source(self, ids: Sequence[int]) -> list[int]:
        """A source as the encoder reads it, truncated to the model's context length."""
        return self.layout.wrap_source(ids[: self.max_source])

    def remarks(self, texts: Sequence[str]) -> list[str]:
        """A sentence about truncated sources, if there are any."""
        ids = self.tokenizer.encode_many(texts)
        truncated = sum(len(source) > self.max_source for source in ids)
        return truncation_remarks(truncated, len(texts), "source", self.max_source)


class TranslateData(DataModule):
    """Pairs in batches in which sources and targets each have similar lengths."""

    metric = Metric("bleu", higher_is_better=True)

    def __init__(self, split: Split[Pair], tokenizer: Tokenizer, recipe: "Recipe") -> None:
        assert isinstance(recipe.model, EncoderDecoder)
        self.split = split
        self.tokenizer = tokenizer
        self.seed = recipe.seed
        self.batch_tokens = recipe.batch
        self.layout = TruncatingLayout(tokenizer, recipe.model)
        self.remarks = []

        max_lengths = recipe.model.length - self.layout.counts
        self.encoded: list[TokenizedTexts] = []  # sources, targets
        self.bpe_dropout: list[
            BpeDropoutTexts
        ] = []  # the same with other segmentations in every epoch
        for number, side in enumerate(("source", "target")):
            texts = [getattr(pair, side) for pair in split.train]
            key = cache_key(split.sha256, f"train-{side}", recipe)
            encoded = encode(texts, tokenizer, key, target=side == "target")
            self.encoded.append(encoded)
            if recipe.bpe_dropout:
                length = int(max_lengths[number])
                seed = (recipe.seed, number)
                dropout = BpeDropoutTexts(
                    texts, encoded, tokenizer, recipe.bpe_dropout, length, seed
                )
                self.bpe_dropout.append(dropout)
        self.remarks += bpe_dropout_remarks(self.bpe_dropout)

        lengths = np.stack([side.lengths for side in self.encoded], axis=1) + self.layout.counts
        self.usable = self._usable(lengths, recipe.model.length)
        self.lengths = lengths[self.usable].sum(axis=1)
        self.validation = list(split.validation[:MAX_VALIDATION_PAIRS])
        self.validation_ids = self._validation_ids(max_lengths)
        train_sources = [pair.source for pair in split.train]
        self.remarks += leakage_remarks(train_sources, [p.source for p in split.validation])
        self.facts = data_facts(
            lengths[self.usable],
            len(split.validation),
            self.batch_tokens,
            self.seed,
            self._epoch_lengths(0),
        )

    def _usable(self, lengths: Ids, max_length: int) -> Ids:
        """The indices of the pairs that fit into the model's context length."""
        usable = np.flatnonzero((lengths <= max_length).all(axis=1))
        if len(usable) < len(lengths):
            self.remarks.append(
                f"{len(lengths) - len(usable):,} of {len(lengths):,} training pairs have a side "
                f"of more than {max_length} tokens, special tokens included, and are left out"
            )
        if not len(usable):
            raise DataError(f"no training pair fits into {max_length} tokens; raise model.length")
        return usable

    def _validation_ids(self, max_lengths: Ids) -> list[tuple[Ids, Ids]]:
        sources = self.tokenizer.encode_many([pair.source for pair in self.split.validation])
        targets = self.tokenizer.encode_many(
            [pair.target for pair in self.split.validation], target=True
        )
        max_source, max_target = max_lengths
        pairs = []
        for source, target in zip(sources, targets, strict=True):
            pairs.append((np.array(source[:max_source]), np.array(target[:max_target])))
        return pairs

    def batch_indices(self, epoch: int) -> list[Ids]:
        rng = np.random.default_rng((self.seed, epoch))
        batches = length_batches(self._epoch_lengths(epoch), self.batch_tokens, rng)
        return [self.usable[batch] for batch in batches]

    def _epoch_lengths(self, epoch: int) -> Ids:
        """The lengths (N, 2) of both sides of each pair in that epoch, with special tokens."""
        lengths: Ids = np.stack([side.lengths for side in self._epoch_sides(epoch)], axis=1)
        return lengths[self.usable] + self.layout.counts

    def _epoch_sides(self, epoch: int) -> list[TokenizedTexts]:
        """Sources and targets as they are tokenized in that epoch."""
        if not self.bpe_dropout:
            return self.encoded
        return [side.epoch(epoch) for side in self.bpe_dropout]

    def batch(self, indices: Ids, rng: np.random.Generator, epoch: int = 0) -> TranslationBatch:
        sources, targets = self._epoch_sides(epoch)
        return self._collate([sources[i] for i in indices], [targets[i] for i in indices])

    def _collate(self, sources: Sequence[Ids], targets: Sequence[ArrayLike]) -> TranslationBatch:
        layout = self.layout
        wrapped = [layout.source(ids) for ids in sources]  # type: ignore[arg-type]
        pad = self.tokenizer.pad_id
        return TranslationBatch.of(wrapped, targets, layout.start, layout.end, pad)

    def validate(self, model: Translator) -> dict[str, float]:
        loss = self._loss(model)
        result = evaluate_translations(
            model, self.tokenizer, self.validation, beams=1, deadline=self.deadline
        )
        return {**result.scores, "loss": loss}

    def warm_up(self, model: Translator) -> None:
        """An untrained model rarely ends a sentence: let it write as much as it reads."""
        self._loss(model)
        sources = [pair.source for pair in self.validation]
        longest = model.config.length - int(self.layout.counts[1])
        translate_texts(
            model, self.tokenizer, sources, beams=1, longest=lambda length: min(length, longest)
        )

    def sample(self, model: Translator) -> str:
        source = self.validation[0].source
        (translation,) = translate_texts(model, self.tokenizer, [source], beams=1)
        return f"{source} → {translation}"

    def evaluate(self, model: Translator) -> EvalResult:
        return evaluate_translations(
            model, self.tokenizer, self.split.validation, EVAL_BEAMS, self.deadline
        )

    def alignment(self, model: Translator) -> AlignmentHeads:
        template = TranslationTemplate.of(self.tokenizer, model.config)
        pairs = self.validation_ids[:MAX_ALIGNED_PAIRS]
        sentences = [Sentence(source.tolist(), target.tolist()) for source, target in pairs]
        return choose_alignment(model, template, sentences)

    def _loss(self, model: Translator) -> float:
        """Nats per target token, without label smoothing; of some batches if time is short."""
        half_time = None
        if self.deadline is not None:
            half_time = (time.perf_counter() + self.deadline) / 2
        device = model.embedding.weight.device
        task = TranslateTask(label_smoothing=0.0)
        sizes = [[len(source), len(target)] for source, target in self.validation_ids]
        lengths = np.array(sizes) + self.layout.counts
        total = 0.0
        count = 0
        with inference(model):
            batches = length_batches(lengths, self.batch_tokens, np.random.default_rng(0))
            for indices in until(half_time, batches):
                sources, targets = zip(*(self.validation_ids[i] for i in indices), strict=True)
                batch = self._collate(sources, targets).to(device)
                total += float(task.loss(model, batch))
                count += batch.num_targets
        return total / max(1, count)


def evaluate_translations(
    model: Translator,
    tokenizer: Tokenizer,
    pairs: Sequence[Pair],
    beams: int,
    deadline: float | None = None,
) -> EvalResult:
    """BLEU and chrF, next to those of the untranslated source.

    With a deadline, by `time.perf_counter`, as many of the pairs as can be translated until then.
    """
    translations: list[str] = []
    for chunk in _chunks([pair.source for pair in pairs], deadline):
        translations += translate_texts(model, tokenizer, chunk, beams)
    remarks = []
    complete = len(translations) == len(pairs)
    if not complete:
        remarks.append(
            f"measured on {len(translations):,} of {len(pairs):,} pairs: there was no time for more"
        )
    pairs = pairs[: len(translations)]
    sources = [pair.source for pair in pairs]
    references = [pair.target for pair in pairs]
    scores = score_translations(translations, references)
    baseline = score_translations(sources, references)
    predictions = _rank(sources, references, translations)
    rows = tuple(zip(sources, translations, references, strict=True))[:MAX_SAMPLES]
    return EvalResult(
        scores={"bleu": scores.bleu, "chrf": scores.chrf},
        examples=len(pairs),
        baseline={"bleu": baseline.bleu, "chrf": baseline.chrf},
        baseline_name="copying the source",
        signatures={"bleu": scores.bleu_signature, "chrf": scores.chrf_signature},
        remarks=(*remarks, *TruncatingLayout(tokenizer, model.config).remarks(sources)),
        samples=(
            Table("Translations", ("source", "translation", "reference"), rows),
            predictions.table(),
        ),
        predictions=predictions,
        complete=complete,
    )


def _rank(
    sources: Sequence[str], references: Sequence[str], translations: Sequence[str]
) -> Predictions:
    """Every pair with its translation, the one least like its reference first."""
    chrf = sentence_chrf(translations, references)
    rows = sorted(zip(sources, references, translations, chrf, strict=True), key=lambda row: row[3])
    columns = ("source", "reference", "translation", "chrf")
    return Predictions("Translations with the lowest chrF", columns, rows, columns)


def _chunks(texts: Sequence[str], deadline: float | None) -> Iterator[Sequence[str]]:
    """All texts at once, which is fastest; with a deadline, growing chunks until it is near."""
    if deadline is None:
        yield texts
        return
    size = FIRST_CHUNK
    first = 0
    while first < len(texts):
        start = time.perf_counter()
        yield texts[first : first + size]
        end = time.perf_counter()
        first += size
        size *= 2
        if end + 2 * (end - start) > deadline:
            break


def translate_texts(
    model: Translator,
    tokenizer: Tokenizer,
    texts: Sequence[str],
    beams: int,
    longest: Callable[[int], int] | None = None,
) -> list[str]:
    """The best hypothesis for each text; `longest` as for `beam_search`."""
    layout = TruncatingLayout(tokenizer, model.config)
    sources = [layout.source(ids) for ids in tokenizer.encode_many(texts)]
    hypotheses = beam_search(
        model,
        sources,
        bos=layout.start[-1],
        prefix=layout.start[:-1],
        eos=layout.end,
        beams=beams,
        max_length=longest,
        forbidden=layout.forbidden,
    )
    return [tokenizer.decode(best.ids) for best, *_ in hypotheses]
