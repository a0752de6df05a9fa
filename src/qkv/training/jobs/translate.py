"""`qkv train translate`: texts and their translations."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from qkv.bundle import Bundle
from qkv.data import Pair, built_in, read_pairs, split
from qkv.data.encoded import Encoded, Ids, Noisy, encode, near_length
from qkv.engine.batching import inference
from qkv.engine.beam.search import beam_search
from qkv.engine.translate import Marking as Marks
from qkv.errors import DataError
from qkv.metrics.text_scores import score_translations
from qkv.model import EncoderDecoder, Model, Translator
from qkv.model.build import ModelConfig
from qkv.report import Table
from qkv.tasks.token_tasks import PairBatch, TranslateTask
from qkv.text import Tokenizer
from qkv.training.jobs.base import (
    DataModule,
    EvalResult,
    Job,
    Metric,
    Parts,
    fingerprint,
    part_key,
    paths,
    unsuited,
)
from qkv.training.jobs.text_data import data_facts, tell_cut, tell_leaks, tell_stiff
from qkv.training.optimizer import Linear, MuonAdamW, Schedule
from qkv.training.recipe import Data, Recipe, TaskChoice

# FOLDED train/job/marking: The marks of a translator while it is taught: as where it answers,
#   but long sources are cut.


class Marking:
    """How texts are marked for this model."""

    def __init__(self, tokenizer: Tokenizer, config: EncoderDecoder) -> None:
        self.tokenizer, self.marks = tokenizer, Marks.of(tokenizer, config)
        self.start, self.end, self.never = self.marks.start, self.marks.end, self.marks.never
        around = len(self.marks.source(()))
        self.counts: Ids = np.array([around, len(self.start)])  # marks of a source and a target

    def source(self, ids: Sequence[int]) -> list[int]:
        """A source as the encoder reads it, cut if it is longer than the model's length."""
        return self.marks.source(ids[: self.marks.room])

    def remarks(self, texts: Sequence[str]) -> list[str]:
        """What a person should know of these sources, if anything: none is cut silently."""
        room = self.marks.room
        long = sum(len(ids) > room for ids in self.tokenizer.encode_many(texts))
        return tell_cut(long, len(texts), "source", room)


WATCHED = 256  # held-out sentences translated at each evaluation


class Translating(Job[Parts[Pair]]):
    name, title = "translate", "A translator"
    roles = ("source", "target")
    synthetic = noisy = turns = True
    batch, steps, epochs = 3000, 6000, 20
    ema = 0.996

    def load(self, data: Data, seed: int) -> Parts[Pair]:
        pairs = _read(data.files, data.source, data.target)
        if data.validation:
            train, validation = pairs, validation_pairs(data)
        else:
            train, validation = split(pairs, seed, data.validation_fraction)
        read = [*pairs, *(validation if data.validation else ())]
        if data.bidirectional:
            train, validation, read = map(_bidirectional, (train, validation, read))
        sides = (side for pair in read for side in (pair.source, pair.target))
        return Parts(train, validation, fingerprint(sides))

    def texts(self, parts: Parts[Pair]) -> Iterable[str]:
        return (side for pair in parts.train for side in (pair.source, pair.target))

    def task(self, parts: Parts[Pair]) -> TaskChoice:
        return TranslateTask()

    def optimizer(self) -> MuonAdamW:
        return MuonAdamW(matrix_lr=0.03, lr=6e-3, beta2=0.98)

    def schedule(self) -> Schedule:
        return Linear(hold=0.3)

    def fit(self, config: ModelConfig, vocabulary: int, parts: Parts[Pair]) -> ModelConfig:
        if not isinstance(config, EncoderDecoder):
            raise unsuited("translate", "encoder_decoder", config)
        embedding = config.embedding.model_copy(update={"vocabulary": vocabulary})
        return config.model_copy(update={"embedding": embedding})

    def data_module(self, parts: Parts[Pair], tokenizer: Tokenizer, recipe: Recipe) -> DataModule:
        return TranslateData(parts, tokenizer, recipe)

    def answers(self, model: Model) -> bool:
        return isinstance(model, Translator)

    def evaluate(self, bundle: Bundle, data: Data, recipe: Recipe | None) -> EvalResult:
        assert isinstance(bundle.model, Translator)
        assert bundle.tokenizer is not None
        pairs = _read(data.files, data.source, data.target)
        return evaluate_translations(bundle.model, bundle.tokenizer, pairs, beams=5)


class TranslateData(DataModule):
    """Pairs in batches whose sources and whose targets are of near length."""

    metric = Metric("bleu", higher_is_better=True)

    def __init__(self, parts: Parts[Pair], tokenizer: Tokenizer, recipe: Recipe) -> None:
        self.parts, self.tokenizer = parts, tokenizer
        self.seed, self.budget = recipe.seed, recipe.batch
        assert isinstance(recipe.task, TranslateTask)
        self.task = recipe.task
        self.remarks = []
        assert isinstance(recipe.model, EncoderDecoder)
        self.marks = Marking(tokenizer, recipe.model)
        most = recipe.model.length
        rooms = most - self.marks.counts
        self.plain = list[Encoded]()
        self.noisy = list[Noisy]()  # both sides with other cuts in every epoch, if asked for
        for number, side in enumerate(("source", "target")):
            texts = [getattr(pair, side) for pair in parts.train]
            key = part_key(parts, f"train-{side}", recipe)
            plain = encode(texts, tokenizer, key, target=side == "target")
            self.plain.append(plain)
            if recipe.bpe_dropout:
                room, seed = int(rooms[number]), (recipe.seed, number)
                self.noisy.append(Noisy(texts, plain, tokenizer, recipe.bpe_dropout, room, seed))
        tell_stiff(self.noisy, self.remarks)
        lengths = np.stack([side.lengths for side in self.plain], axis=1) + self.marks.counts
        self.kept = np.flatnonzero((lengths <= most).all(axis=1))
        if len(self.kept) < len(lengths):
            self.remarks.append(
                f"{len(lengths) - len(self.kept):,} of {len(lengths):,} training pairs have a "
                f"side of more than {most} tokens, marks included, and are left out"
            )
        if not len(self.kept):
            raise DataError(f"no training pair fits into {most} tokens; raise model.length")
        self.lengths = lengths[self.kept].sum(axis=1)
        self.validation = [parts.validation[i] for i in range(min(WATCHED, len(parts.validation)))]
        ids = [
            tokenizer.encode_many(
                [getattr(pair, side) for pair in parts.validation], target=side == "target"
            )
            for side in ("source", "target")
        ]
        self.held_ids = [
            (np.array(s[: rooms[0]]), np.array(t[: rooms[1]])) for s, t in zip(*ids, strict=True)
        ]
        tell_leaks(
            [p.source for p in parts.train], [p.source for p in parts.validation], self.remarks
        )
        self.facts = data_facts(
            lengths[self.kept], len(parts.validation), self.budget, self.seed, self._sides(0)
        )

    def order(self, epoch: int) -> list[Ids]:
        draws = np.random.default_rng((self.seed, epoch))
        return [self.kept[batch] for batch in near_length(self._sides(epoch), self.budget, draws)]

    def _sides(self, epoch: int) -> Ids:
        """The lengths (N, 2) of both sides of each pair, marks included, in that epoch."""
        lengths: Ids = np.stack([side.lengths for side in self._read(epoch)], axis=1)
        return lengths[self.kept] + self.marks.counts

    def batch(self, numbers: Ids, draws: np.random.Generator, epoch: int = 0) -> PairBatch:
        sources, targets = self._read(epoch)
        return self._pairs([sources[i] for i in numbers], [targets[i] for i in numbers])

    def validate(self, model: Translator) -> dict[str, float]:
        loss = self._loss(model)
        judged = evaluate_translations(model, self.tokenizer, self.validation, beams=1)
        return {**judged.scores, "loss": loss}

    def warm_up(self, model: Translator) -> None:
        """A fresh model rambles: it may write as much as there is to read, and not more."""
        self._loss(model)
        sources = [pair.source for pair in self.validation]
        room = model.config.length - int(self.marks.counts[1])
        translate_texts(model, self.tokenizer, sources, 1, lambda source: min(source, room))

    def sample(self, model: Translator) -> str:
        source = self.validation[0].source
        (said,) = translate_texts(model, self.tokenizer, [source], beams=1)
        return f"{source} → {said}"

    def evaluate(self, model: Translator) -> EvalResult:
        return evaluate_translations(model, self.tokenizer, self.parts.validation, beams=5)

    def _read(self, epoch: int) -> list[Encoded]:
        """Sources and targets as they are cut in that epoch."""
        return [side.epoch(epoch) for side in self.noisy] or self.plain

    def _loss(self, model: Translator) -> float:
        """Nats a target token, without label_smoothing."""
        device = model.embedding.weight.device
        plain, total, count = TranslateTask(label_smoothing=0.0), 0.0, 0
        lengths = np.array([[len(s), len(t)] for s, t in self.held_ids]) + self.marks.counts
        with inference(model):
            for numbers in near_length(lengths, self.budget, np.random.default_rng(0)):
                sides = zip(*(self.held_ids[i] for i in numbers), strict=True)
                batch = self._pairs(*sides).to(device)
                total += float(plain.loss(model, batch))
                count += batch.targets
        return total / max(1, count)

    def _pairs(self, sources: Sequence[Any], targets: Sequence[Any]) -> PairBatch:
        marks = self.marks
        closed = [marks.source(ids) for ids in sources]
        return PairBatch.of(closed, targets, marks.start, marks.end, self.tokenizer.pad_id)


def evaluate_translations(
    model: Translator, tokenizer: Tokenizer, pairs: Sequence[Pair], beams: int
) -> EvalResult:
    """BLEU and chrF beside what copying the source would get."""
    sources, references = [p.source for p in pairs], [p.target for p in pairs]
    said = translate_texts(model, tokenizer, sources, beams)
    found, copied = (score_translations(guess, references) for guess in (said, sources))
    rows = tuple(zip(sources[:8], said[:8], references[:8], strict=True))
    return EvalResult(
        {"bleu": found.bleu, "chrf": found.chrf},
        len(pairs),
        {"bleu": copied.bleu, "chrf": copied.chrf},
        "copying the source",
        signatures={"bleu": found.bleu_signature, "chrf": found.chrf_signature},
        remarks=tuple(Marking(tokenizer, model.config).remarks(sources)),
        samples=(Table("Translations", ("source", "translation", "reference"), rows),),
    )


def translate_texts(
    model: Translator,
    tokenizer: Tokenizer,
    texts: Sequence[str],
    beams: int,
    longest: Callable[[int], int] | None = None,
) -> list[str]:
    """The best translation found for each text; longest: as for `beam_search`."""
    marks = Marking(tokenizer, model.config)
    sources = [marks.source(ids) for ids in tokenizer.encode_many(texts)]
    found = beam_search(
        model,
        sources,
        start=marks.start[-1],
        before=marks.start[:-1],
        end=marks.end,
        beams=beams,
        longest=longest,
        forbidden=marks.never,
    )
    return [tokenizer.decode(best.ids) for best, *_ in found]


def validation_pairs(data: Data) -> list[Pair]:
    """Those of --validation: tables with the same columns, or two more parallel files."""
    if data.files:
        return read_pairs(paths(data.validation), data.source, data.target)
    if len(data.validation) != 2:
        raise DataError(
            "parallel files are validated with two more: --validation SOURCE --validation TARGET"
        )
    return read_pairs([], *data.validation)


def _bidirectional(pairs: Sequence[Pair]) -> list[Pair]:
    """Each pair, and behind it the same pair the other way round."""
    return [turned for p in pairs for turned in (p, Pair(p.target, p.source))]


def _read(files: Sequence[str], source: str | None, target: str | None) -> list[Pair]:
    if not files and source is None and target is None:
        return built_in("translate")
    return read_pairs(paths(files), source, target)
