"""Batches of labelled texts, with the augmentations of the task classify."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from qkv.data import BpeDropoutTexts, LabelledText, encode, length_batches
from qkv.engine import PaddedBatch, pooled_states
from qkv.errors import ConfigError, UsageError
from qkv.metrics import WordCountClassifier, out_of_fold_probs
from qkv.model import Classify, Encoder, EncoderOnly
from qkv.text import Tokenizer
from qkv.training.tasks.classify import (
    ClassifyTask,
    LabelledBatch,
    VectorBatch,
    evaluate_labels,
    label_log_probs,
)
from qkv.training.tasks.cutmix import CutMix
from qkv.training.tasks.encoded_texts import (
    TruncatedTexts,
    bpe_dropout_remarks,
    data_facts,
    encode_texts,
    leakage_remarks,
)
from qkv.training.tasks.task import DataModule, EvalResult, Ids, Metric, Split, cache_key

if TYPE_CHECKING:
    from qkv.training.recipe import Recipe

MAX_LABELS_SHOWN = 10


class ClassifyData(DataModule):
    """Texts in batches of similar length, with a loss weight for each label."""

    metric = Metric("macro_f1", higher_is_better=True)

    def __init__(
        self, task: ClassifyTask, split: Split[LabelledText], tokenizer: Tokenizer, recipe: "Recipe"
    ) -> None:
        assert isinstance(recipe.model, EncoderOnly)
        assert isinstance(recipe.model.output, Classify)
        self.task = task
        self.split = split
        self.tokenizer = tokenizer
        self.seed = recipe.seed
        self.batch_tokens = recipe.batch
        self.label_names = recipe.model.output.labels
        index = {label: i for i, label in enumerate(self.label_names)}
        self.labels = torch.tensor([index[e.label] for e in split.train])
        self.label_counts = torch.bincount(self.labels, minlength=len(self.label_names)).float()
        self.weights = _label_weights(self.label_counts, task.balance)

        texts = [e.text for e in split.train]
        encoded = encode(texts, tokenizer, cache_key(split.sha256, "train", recipe))
        self.train = TruncatedTexts(encoded, tokenizer, recipe.model.context_length)
        self.probs = self._soft_labels(texts)
        self.cutmix = self._cutmix(texts)
        self.vectors: Tensor | None = None  # of a frozen encoder
        self.remarks = self.train.remarks("training")
        self.bpe_dropout: BpeDropoutTexts | None = None  # other segmentations in every epoch
        if recipe.bpe_dropout:
            if task.frozen:
                raise UsageError(
                    "tokens.bpe_dropout is not for freeze=True, which reads every text once; leave "
                    "one of them out"
                )
            length = self.train.text_length
            seed = (recipe.seed, 0)
            self.bpe_dropout = BpeDropoutTexts(
                texts, encoded, tokenizer, recipe.bpe_dropout, length, seed
            )
            self.remarks += bpe_dropout_remarks([self.bpe_dropout])
        self.remarks += leakage_remarks(texts, [e.text for e in split.validation])
        self.lengths = self.train.lengths
        self.facts = self._facts()

    def batch_indices(self, epoch: int) -> list[Ids]:
        """Indices from len(self.train) on are those of the CutMix texts of that epoch."""
        rng = np.random.default_rng((self.seed, epoch))
        return length_batches(np.maximum(1, self._epoch_lengths(epoch)), self.batch_tokens, rng)

    def prepare_model(self, model: Encoder) -> None:
        """Frozen: the encoder reads every text once, and only the head is trained."""
        if not self.task.frozen:
            return
        for name, parameter in model.named_parameters():
            parameter.requires_grad_(name.startswith("output."))
        self.vectors = pooled_states(model, self.train)

    def batch(
        self, indices: Ids, rng: np.random.Generator, epoch: int = 0
    ) -> LabelledBatch | VectorBatch:
        if self.vectors is not None:
            labels = self.labels[indices]
            probs = None if self.probs is None else self.probs[indices]
            return VectorBatch(self.vectors[indices], labels, self.weights[labels], probs)
        texts, labels, probs = self._examples(indices, epoch)
        if self.task.word_dropout:
            texts = [self._drop_words(text, rng) for text in texts]
        padded = PaddedBatch.of(texts, self.tokenizer.pad_id)
        return LabelledBatch(padded, labels, self.weights[labels], probs)

    def validate(self, model: Encoder) -> dict[str, float]:
        result = evaluate_labels(model, self.tokenizer, self.split.validation, None)
        return dict(result.scores)

    def sample(self, model: Encoder) -> str:
        example = self.split.validation[0]
        encoded = encode_texts([example.text], self.tokenizer, model.config.context_length)
        best = int(label_log_probs(model, encoded).argmax())
        return f"{' '.join(example.text.split())[:60]} → {self.label_names[best]}"

    def evaluate(self, model: Encoder) -> EvalResult:
        return evaluate_labels(
            model, self.tokenizer, self.split.validation, self.split.train, self.deadline
        )

    def _facts(self) -> list[tuple[str, str]]:
        facts = data_facts(
            self.lengths[:, None],
            len(self.split.validation),
            self.batch_tokens,
            self.seed,
            self._epoch_lengths(0),
        )
        if self.cutmix is not None:
            facts.append(("CutMix texts", f"{self.cutmix.count:,} per epoch"))
        fractions = []
        for name, count in zip(self.label_names, self.label_counts.tolist(), strict=True):
            fractions.append(f"{name} {int(count) / len(self.train):.1%}")
        labels = ", ".join(fractions[:MAX_LABELS_SHOWN])
        facts.append(("labels", f"{len(self.label_names)}: {labels}"))
        return facts

    def _epoch_lengths(self, epoch: int) -> Ids:
        """Lengths of all texts of that epoch, (N, 1)."""
        lengths = self._epoch_texts(epoch).lengths
        if self.cutmix is not None:
            cutmix_texts, _ = self.cutmix.epoch(epoch)
            lengths = np.concatenate([lengths, cutmix_texts.lengths])
        return lengths[:, None]

    def _epoch_texts(self, epoch: int) -> TruncatedTexts:
        """The texts as they are tokenized in that epoch."""
        if self.bpe_dropout is None:
            return self.train
        return TruncatedTexts(self.bpe_dropout.epoch(epoch), self.tokenizer, self.train.length)

    def _examples(self, indices: Ids, epoch: int) -> tuple[list[Ids], Tensor, Tensor | None]:
        """Ids, labels and soft labels; the label of a CutMix text is the teacher's argmax."""
        originals = indices[indices < len(self.train)]
        epoch_texts = self._epoch_texts(epoch)
        texts = [epoch_texts[i] for i in originals]
        labels = self.labels[originals]
        probs = None if self.probs is None else self.probs[originals]
        if self.cutmix is None or len(originals) == len(indices):
            return texts, labels, probs
        cutmix_texts, cutmix_probs = self.cutmix.epoch(epoch)
        extra = indices[indices >= len(self.train)] - len(self.train)
        texts += [cutmix_texts[i] for i in extra]
        cutmix_probs = cutmix_probs[extra]
        if probs is None:
            probs = F.one_hot(labels, len(self.label_names)).float()
        labels = torch.cat([labels, cutmix_probs.argmax(dim=1)])
        return texts, labels, torch.cat([probs, cutmix_probs])

    def _soft_labels(self, texts: Sequence[str]) -> Tensor | None:
        """The one-hot labels, mixed with what a teacher trained on other texts predicts."""
        if not self.task.distillation_weight:
            return None
        num_labels = len(self.label_names)
        # Each text's probabilities come from a fold that did not contain it (cross-fitting).
        teacher = out_of_fold_probs(texts, self.labels.numpy(), num_labels, self.seed)
        one_hot = F.one_hot(self.labels, num_labels).float()
        return torch.lerp(one_hot, torch.from_numpy(teacher), self.task.distillation_weight)

    def _cutmix(self, texts: Sequence[str]) -> CutMix | None:
        count = round(self.task.cutmix * len(texts))
        if not count:
            return None
        if self.task.frozen:
            raise ConfigError(
                f"task.cutmix={self.task.cutmix} makes new texts, but a frozen encoder reads "
                f"each text once; set task.cutmix=0"
            )
        teacher = WordCountClassifier(texts, self.labels.numpy(), len(self.label_names))
        return CutMix(texts, teacher, self.tokenizer, self.train.length, count, self.seed)

    def _drop_words(self, text: Ids, rng: np.random.Generator) -> Ids:
        dropped = rng.random(len(text)) < self.task.word_dropout
        dropped &= ~np.isin(text, list(self.tokenizer.special_ids))
        return np.where(dropped, self.tokenizer.mask_id, text)


def _label_weights(counts: Tensor, balance: float) -> Tensor:
    """Weights counts^−balance for each label, scaled to a mean of 1 over all texts."""
    weights = counts.clamp(min=1).pow(-balance)
    return weights / (weights * counts).sum() * counts.sum()
