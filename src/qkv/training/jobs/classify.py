"""`qkv train classify`: texts and their labels."""

import math
import random
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from qkv.bundle import Bundle
from qkv.checkpoints.save import public_labels
from qkv.data import Labelled, built_in, read_labelled
from qkv.data.encoded import Ids, Noisy, encode, near_length
from qkv.engine.batching import PaddedBatch, batched_outputs, pooled_states
from qkv.engine.classify import labels_of
from qkv.errors import ConfigError, DataError, UsageError
from qkv.metrics.classification import WordCounts, bag_of_words, counted_by_others, score_labels
from qkv.model import Classify, Encoder, EncoderOnly, Model, TextVector
from qkv.model.build import ModelConfig
from qkv.report import Table
from qkv.tasks.text_tasks import ClassifyTask, LabelledTexts, LabelledVectors
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
from qkv.training.jobs.text_data import Cut, cut_texts, data_facts, tell_leaks, tell_stiff
from qkv.training.recipe import Data, Recipe, TaskChoice

# FOLDED train/job/cutmix: New texts for a teacher to judge: the beginning of one text and the
#   end of another.
#
#   Their words are those of the data, their combinations are not. From them a model learns
#   what a
#   teacher knows of words, where the few texts there are would only be learnt by heart.

SALT = 0x5B1CE  # so that these draws are not those of the batches


class Spliced:
    """As many new texts in each epoch as asked for, with how likely counting finds each label."""

    def __init__(
        self,
        texts: Sequence[str],
        counts: WordCounts,
        tokenizer: Tokenizer,
        length: int,
        number: int,
        seed: int,
    ) -> None:
        self.words = [text.split() for text in texts]
        self.counts, self.tokenizer, self.length = counts, tokenizer, length
        self.number, self.seed = number, seed
        self.of = lru_cache(maxsize=1)(self._of)  # an epoch's batches come one after the other

    def texts(self, epoch: int) -> list[str]:
        """A pure function of seed and epoch."""
        draws = np.random.default_rng((self.seed, SALT, epoch))
        ones, others = draws.integers(len(self.words), size=(2, self.number)).tolist()
        parts = draws.random((self.number, 2)).tolist()
        return [
            _splice(self.words[one], self.words[other], *part)
            for one, other, part in zip(ones, others, parts, strict=True)
        ]

    def _of(self, epoch: int) -> tuple[Cut, Tensor]:
        """The epoch's texts as ids, and their labels' shares (texts, labels)."""
        texts = self.texts(epoch)
        shares = torch.from_numpy(self.counts.shares(texts))
        return cut_texts(texts, self.tokenizer, self.length), shares


def _splice(one: Sequence[str], other: Sequence[str], begin: float, end: float) -> str:
    """The first words of one text, at least one of them, and the last of another."""
    kept = one[: 1 + int(begin * len(one))]
    return " ".join([*kept, *other[int(end * len(other)) :]])


class Classifying(Job[Parts[Labelled]]):
    name, title = "classify", "A text classifier"
    roles = ("text", "label")
    tokens = "wordpiece"
    synthetic = noisy = True
    vocabulary = 10_000
    batch, steps, epochs = 1024, 3000, 6
    ema, patience = 0.99, 5
    tuned_lr, tuned_ema = 0.06, 0.98

    def load(self, data: Data, seed: int) -> Parts[Labelled]:
        examples = _read(data.files, data)
        if data.validation:
            train, validation = examples, _read(data.validation, data, least=1)
            _refuse_new_labels(train, validation)
        else:
            train, validation = split_by_label(examples, seed, data.validation_fraction)
        read = (*examples, *(validation if data.validation else ()))
        marks = (part for e in read for part in (e.text, e.label))
        return Parts(train, validation, fingerprint(marks))

    def texts(self, parts: Parts[Labelled]) -> Iterable[str]:
        return (example.text for example in parts.train)

    def task(self, parts: Parts[Labelled]) -> TaskChoice:
        return ClassifyTask()

    def fit(self, config: ModelConfig, vocabulary: int, parts: Parts[Labelled]) -> ModelConfig:
        labels = tuple(sorted({example.label for example in parts.train}, key=_natural))
        output = config.output
        if isinstance(output, Classify):
            changed = output.model_copy(update={"labels": labels})
        elif isinstance(output, TextVector) and output.normalize:
            # An encoder of sentences: what is pooled well for a vector is so for a label.
            changed = Classify(labels=labels, pooling=output.pooling)
        else:
            changed = public_labels(config, labels) or Classify(labels=labels)
        return with_output(self.name, config, vocabulary, changed)

    def data_module(
        self, parts: Parts[Labelled], tokenizer: Tokenizer, recipe: Recipe
    ) -> DataModule:
        return ClassifyData(parts, tokenizer, recipe)

    def answers(self, model: Model) -> bool:
        return isinstance(model, Encoder) and isinstance(model.config.output, Classify)

    def evaluate(self, bundle: Bundle, data: Data, recipe: Recipe | None) -> EvalResult:
        assert isinstance(bundle.model, Encoder)
        assert bundle.tokenizer is not None
        examples = _read(data.files, data, least=1)
        known = labels_of(bundle.model)
        strange = {e.label for e in examples} - set(known)
        if strange:
            raise DataError(
                f'the label "{min(strange)}" is none of the model\'s: {", ".join(known)}'
            )
        learnt = None if recipe is None else self._learnt(recipe)
        return evaluate_labels(bundle.model, bundle.tokenizer, examples, learnt)

    def _learnt(self, recipe: Recipe) -> Sequence[Labelled] | None:
        """What the model has learnt from; without it, there is no fair baseline."""
        try:
            parts = self.load(recipe.data, recipe.seed)
        except DataError:  # the files are elsewhere
            return None
        return parts.train if parts.sha256 == recipe.data.sha256 else None


class ClassifyData(DataModule):
    """Texts in batches of near length, with a weight for each label."""

    metric = Metric("macro_f1", higher_is_better=True)

    def __init__(self, parts: Parts[Labelled], tokenizer: Tokenizer, recipe: Recipe) -> None:
        assert isinstance(recipe.model, EncoderOnly)
        assert isinstance(recipe.model.output, Classify)
        assert isinstance(recipe.task, ClassifyTask)
        self.parts, self.tokenizer, self.task = parts, tokenizer, recipe.task
        self.seed, self.budget = recipe.seed, recipe.batch
        self.names = recipe.model.output.labels
        numbers = {label: number for number, label in enumerate(self.names)}
        self.labels = torch.tensor([numbers[e.label] for e in parts.train])
        counts = torch.bincount(self.labels, minlength=len(self.names)).float()
        weights = counts.clamp(min=1).pow(-recipe.task.balance)
        self.weights = weights / (weights * counts).sum() * counts.sum()  # on average 1
        texts = [e.text for e in parts.train]
        encoded = encode(texts, tokenizer, part_key(parts, "train", recipe))
        self.train = Cut(encoded, tokenizer, recipe.model.context_length)
        self.noisy: Noisy | None = None  # the same with other cuts in every epoch
        self.shares = self._shares(texts)
        self.spliced = self._spliced(texts)
        self.vectors: torch.Tensor | None = None  # of a frozen encoder, once it is asked
        self.remarks = self.train.remarks("training")
        if recipe.bpe_dropout:
            if self.task.frozen:
                raise UsageError(
                    "tokens.bpe_dropout is not for --freeze, which reads every text once"
                )
            seed = (recipe.seed, 0)
            self.noisy = Noisy(texts, encoded, tokenizer, recipe.bpe_dropout, self.train.room, seed)
            tell_stiff([self.noisy], self.remarks)
        tell_leaks(texts, [e.text for e in parts.validation], self.remarks)
        self.lengths = self.train.lengths
        self.facts = data_facts(
            self.lengths[:, None], len(parts.validation), self.budget, self.seed, self._lengths(0)
        )
        if self.spliced is not None:
            self.facts.append(("spliced texts beside them", f"{self.spliced.number:,} an epoch"))
        shares = ", ".join(
            f"{name} {int(n) / len(texts):.1%}"
            for name, n in zip(self.names[:10], counts[:10].tolist(), strict=True)
        )
        self.facts.append(("labels", f"{len(self.names)}: {shares}"))

    def order(self, epoch: int) -> list[Ids]:
        """Numbers from len(self.train) on are of the spliced texts of that epoch."""
        draws = np.random.default_rng((self.seed, epoch))
        return near_length(np.maximum(1, self._lengths(epoch)), self.budget, draws)

    def _lengths(self, epoch: int) -> Ids:
        """Of all that is read in that epoch, (N, 1)."""
        lengths = self._read(epoch).lengths
        if self.spliced is not None:
            lengths = np.concatenate([lengths, self.spliced.of(epoch)[0].lengths])
        return lengths[:, None]

    def begin(self, model: Encoder) -> None:
        """Frozen: the encoder reads every text once, and only the small network on top learns."""
        if not self.task.frozen:
            return
        for name, parameter in model.named_parameters():
            parameter.requires_grad_(name.startswith("output."))
        self.vectors = pooled_states(model, self.train)

    def batch(
        self, numbers: Ids, draws: np.random.Generator, epoch: int = 0
    ) -> LabelledTexts | LabelledVectors:
        if self.vectors is not None:
            labels, shares = self.labels[numbers], self._said(numbers)
            return LabelledVectors(self.vectors[numbers], labels, self.weights[labels], shares)
        texts, labels, shares = self._texts(numbers, epoch)
        if self.task.word_dropout:
            texts = [self._blanked(text, draws) for text in texts]
        padded = PaddedBatch.of(texts, self.tokenizer.pad_id)
        return LabelledTexts(padded, labels, self.weights[labels], shares)

    def validate(self, model: Encoder) -> dict[str, float]:
        judged = evaluate_labels(model, self.tokenizer, self.parts.validation, None)
        return dict(judged.scores)

    def sample(self, model: Encoder) -> str:
        example = self.parts.validation[0]
        cut = cut_texts([example.text], self.tokenizer, model.config.context_length)
        guess = guess_labels(model, cut)[0][0]
        return f"{' '.join(example.text.split())[:60]} → {guess}"

    def evaluate(self, model: Encoder) -> EvalResult:
        return evaluate_labels(model, self.tokenizer, self.parts.validation, self.parts.train)

    def _read(self, epoch: int) -> Cut:
        """The texts as they are cut in that epoch."""
        if self.noisy is None:
            return self.train
        return Cut(self.noisy.epoch(epoch), self.tokenizer, self.train.length)

    def _texts(
        self, numbers: Ids, epoch: int
    ) -> tuple[list[Ids], torch.Tensor, torch.Tensor | None]:
        """Ids, labels and what a teacher says; a spliced text's label is the likeliest."""
        own, read = numbers[numbers < len(self.train)], self._read(epoch)
        texts, labels, shares = [read[i] for i in own], self.labels[own], self._said(own)
        if self.spliced is None or len(own) == len(numbers):
            return texts, labels, shares
        made, said = self.spliced.of(epoch)
        places = numbers[numbers >= len(self.train)] - len(self.train)
        said = said[places]
        if shares is None:
            shares = F.one_hot(labels, len(self.names)).float()
        texts += [made[i] for i in places]
        return texts, torch.cat([labels, said.argmax(dim=1)]), torch.cat([shares, said])

    def _said(self, numbers: Ids) -> torch.Tensor | None:
        return None if self.shares is None else self.shares[numbers]

    def _shares(self, texts: Sequence[str]) -> torch.Tensor | None:
        """The labels, given way in part to what counting words says of each text."""
        if not self.task.distillation_weight:
            return None
        count = len(self.names)
        said = counted_by_others(texts, self.labels.numpy(), count, self.seed)
        sure = F.one_hot(self.labels, count).float()
        return torch.lerp(sure, torch.from_numpy(said), self.task.distillation_weight)

    def _spliced(self, texts: Sequence[str]) -> Spliced | None:
        number = round(self.task.cutmix * len(texts))
        if not number:
            return None
        if self.task.frozen:
            raise ConfigError(
                f"task.cutmix={self.task.cutmix} makes new texts, but a frozen encoder reads "
                f"each text once; set task.cutmix=0"
            )
        counts = WordCounts(texts, self.labels.numpy(), len(self.names))
        return Spliced(texts, counts, self.tokenizer, self.train.length, number, self.seed)

    def _blanked(self, text: Ids, draws: np.random.Generator) -> Ids:
        hidden = draws.random(len(text)) < self.task.word_dropout
        hidden &= ~np.isin(text, list(self.tokenizer.special_ids))
        return np.where(hidden, self.tokenizer.mask_id, text)


def evaluate_labels(
    model: Encoder,
    tokenizer: Tokenizer,
    examples: Sequence[Labelled],
    learnt: Sequence[Labelled] | None,
) -> EvalResult:
    """Accuracy and the rest; with what was learnt from, TF-IDF and logistic regression beside."""
    texts, truth, names = [e.text for e in examples], [e.label for e in examples], labels_of(model)
    cut = cut_texts(texts, tokenizer, model.config.context_length)
    guesses, losses = guess_labels(model, cut, truth)
    found = score_labels(truth, guesses, names)
    loss = float(np.mean(losses))
    scores = {"accuracy": found.accuracy, "macro_f1": found.macro_f1, "loss": loss}
    baseline, baseline_is = dict[str, float](), ""
    if learnt is not None:
        counted = bag_of_words([e.text for e in learnt], [e.label for e in learnt], texts)
        other = score_labels(truth, counted, names)
        baseline = {"accuracy": other.accuracy, "macro_f1": other.macro_f1}
        baseline_is = "TF-IDF and logistic regression"
    wrong = [i for i in np.argsort(losses)[::-1].tolist() if guesses[i] != truth[i]][:10]
    rows = tuple((" ".join(texts[i].split())[:300], truth[i], guesses[i]) for i in wrong)
    table = Table("Texts it is most wrong about", ("text", "label", "answer"), rows)
    return EvalResult(
        scores, len(examples), baseline, baseline_is, names, found.confusion, {},
        (table,) if rows else (), tuple(cut.remarks("measured")),
    )  # fmt: skip


def guess_labels(
    model: Encoder, texts: Sequence[Ids], truth: Sequence[str] = ()
) -> tuple[list[str], list[float]]:
    """The likeliest label of each text and, with the truth, how surprising that was."""
    names = labels_of(model)
    shares = batched_outputs(model, texts).log_softmax(dim=-1)
    best = [names[i] for i in shares.argmax(dim=-1).tolist()]
    wanted = torch.tensor([names.index(label) for label in truth], dtype=torch.long)
    losses = -shares[: len(wanted)].gather(1, wanted[:, None])[:, 0]
    return best, losses.tolist()


def split_by_label(
    examples: Sequence[Labelled], seed: int, share: float
) -> tuple[list[Labelled], list[Labelled]]:
    """Of every label the same share is held out: one at least, if it has two."""
    by_label: dict[str, list[int]] = defaultdict(list)
    for i, example in enumerate(examples):
        by_label[example.label].append(i)
    chance, held = random.Random(seed), set[int]()
    for label in sorted(by_label):
        members = by_label[label]
        count = min(max(round(len(members) * share), 1), len(members) - 1)
        held.update(chance.sample(members, count))
    if not held:
        raise DataError("every label has a single text; nothing can be held out to measure with")
    train = [e for i, e in enumerate(examples) if i not in held]
    return train, [e for i, e in enumerate(examples) if i in held]


def with_output(job: str, config: ModelConfig, vocabulary: int, output: Any) -> EncoderOnly:
    """That encoder with another vocabulary and output."""
    if not isinstance(config, EncoderOnly):
        raise unsuited(job, "encoder_only", config)
    embedding = config.embedding.model_copy(update={"vocabulary": vocabulary})
    return config.model_copy(update={"embedding": embedding, "output": output})


def _read(files: Sequence[str], data: Data, least: int = 2) -> list[Labelled]:
    if not files:
        return built_in("classify")
    return read_labelled(paths(files), data.text, data.label, least)


def _refuse_new_labels(train: Sequence[Labelled], validation: Sequence[Labelled]) -> None:
    new = Counter(e.label for e in validation).keys() - {e.label for e in train}
    if new:
        raise DataError(f'the validation label "{min(new)}" is not among the training labels')


def _natural(label: str) -> tuple[float, str]:
    """Numbers in their order, then words in theirs; "nan" is a word."""
    try:
        number = float(label)
    except ValueError:
        number = math.inf
    return (number, label) if math.isfinite(number) else (math.inf, label)
