"""`qkv train masked`: predict masked tokens of running text (masked language modeling).

Devlin et al. 2019. It teaches an encoder what words mean, before it learns labels or vectors.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from qkv.bundle import Bundle
from qkv.data import TokenizedTexts
from qkv.engine import inference
from qkv.errors import ConfigError
from qkv.machine import adapt_threads
from qkv.model import (
    Encoder,
    EncoderOnly,
    Fraction,
    LazyLogits,
    MaskedToken,
    Model,
    ModelConfig,
    PredictionHead,
    TiedLogits,
)
from qkv.report import Table
from qkv.text import Tokenizer
from qkv.training.loss import fused_cross_entropy
from qkv.training.tasks.language import EVAL_ROWS, MAX_EXPONENT
from qkv.training.tasks.task import (
    SHORT_OF_TIME,
    DataConfig,
    DataModule,
    EvalResult,
    Ids,
    Metric,
    is_over,
    until,
)
from qkv.training.tasks.text_stream import (
    Corpus,
    RunningTextTask,
    TokenStreams,
    Windows,
    read_documents,
    token_stream,
    unigram_loss,
    windows_in_order,
)

if TYPE_CHECKING:
    from qkv.training.recipe import Recipe

Flags = NDArray[np.bool_]

CONTEXT = 8  # tokens shown on each side of a masked one


@dataclass(frozen=True)
class MaskedBatch:
    """Windows with masked tokens, and what they were.

    masked_positions (N,) index the flattened (B, T) positions; targets (N,) are token ids.
    """

    windows: Windows
    masked_positions: Tensor
    targets: Tensor

    @property
    def num_tokens(self) -> int:
        return self.windows.num_tokens

    @property
    def num_targets(self) -> int:
        return len(self.targets)

    def to(self, device: torch.device) -> "MaskedBatch":
        return MaskedBatch(
            self.windows.to(device), self.masked_positions.to(device), self.targets.to(device)
        )


class MaskedTask(RunningTextTask):
    """Cross-entropy of each masked token.

    A token is chosen with `mask_prob`. Of the chosen ones `mask_replace_prob` become the mask
    token, `random_replace_prob` a random token, and the rest stay, so that the model cannot rely
    on what it sees.
    """

    kind: Literal["masked"] = "masked"
    mask_prob: Fraction = 0.2
    mask_replace_prob: Fraction = 0.8
    random_replace_prob: Fraction = 0.1

    title = "A masked-language-model encoder"
    summary = "masked tokens, for encoders: text files or folders"
    measures = "loss and accuracy on masked tokens; token frequencies"
    usage = ("qkv evaluate {0} other.txt",)
    next_steps = (
        "qkv train classify texts.csv --from {0} -o runs/labels",
        "qkv train embed texts.csv --from {0} -o runs/vectors",
        'qkv explain "your text" --model {0}',
    )
    architecture = "encoder_only"
    presets = "masked"

    def mask(
        self, windows: Windows, mask_id: int, maskable: Flags, rng: np.random.Generator
    ) -> MaskedBatch:
        """Masks some tokens of the windows, only those whose entry in `maskable` (V,) is true."""
        ids = windows.ids.numpy().copy()
        candidates = maskable[ids]
        masked = (rng.random(ids.shape) < self.mask_prob) & candidates
        if not masked.any():  # a tiny batch: mask one token rather than none
            options = np.flatnonzero(candidates)
            masked.flat[rng.choice(options if len(options) else ids.size)] = True
        targets = torch.from_numpy(ids[masked])
        draw = rng.random(ids.shape)
        ids[masked & (draw < self.mask_replace_prob)] = mask_id
        random = masked & (draw >= self.mask_replace_prob)
        random &= draw < self.mask_replace_prob + self.random_replace_prob
        ids[random] = rng.choice(np.flatnonzero(maskable), int(random.sum()))
        inputs = Windows(
            torch.from_numpy(ids), windows.targets, windows.documents, windows.positions
        )
        return MaskedBatch(inputs, torch.from_numpy(np.flatnonzero(masked)), targets)

    def loss(self, model: Encoder, batch: MaskedBatch) -> Tensor:
        return fused_cross_entropy(self._lazy_logits(model, batch), batch.targets)

    def loss_and_hits(self, model: Encoder, batch: MaskedBatch) -> tuple[float, int]:
        """The loss, and for how many masked tokens the argmax is right."""
        lazy = self._lazy_logits(model, batch)
        hits = int((lazy.logits().argmax(dim=-1) == batch.targets).sum())
        return float(fused_cross_entropy(lazy, batch.targets)), hits

    def _lazy_logits(self, model: Encoder, batch: MaskedBatch) -> LazyLogits:
        """What the logits of the masked positions are made of; those of others are not needed."""
        if not isinstance(model.output, TiedLogits | PredictionHead):
            raise ConfigError("to learn masked tokens, a model needs the output MaskedToken")
        windows = batch.windows
        states = model.encode(windows.ids, mask=windows.mask, positions=windows.positions)
        states = states.flatten(0, 1)[batch.masked_positions]
        return model.output.lazy(states, model.embedding.weight)

    @classmethod
    def output(cls, config: ModelConfig, split: Corpus) -> object:
        if isinstance(config.output, MaskedToken):
            return config.output
        assert isinstance(config, EncoderOnly)
        stack = config.encoder
        dense_width = None if stack.embedding_width is None else stack.input_width
        return MaskedToken(norm=stack.norm, dense_width=dense_width)

    def data_module(self, split: Corpus, tokenizer: Tokenizer, recipe: "Recipe") -> "MaskedData":
        return MaskedData(self, split, tokenizer, recipe)

    @classmethod
    def matches(cls, model: Model) -> bool:
        return isinstance(model, Encoder) and isinstance(model.config.output, MaskedToken)

    @classmethod
    def evaluate(cls, bundle: Bundle, data: DataConfig, recipe: "Recipe | None") -> EvalResult:
        assert isinstance(bundle.model, Encoder)
        assert bundle.tokenizer is not None
        documents = read_documents(data.files, data)
        stream = token_stream(documents, bundle.tokenizer, documents.sha256)
        task = cls() if recipe is None else recipe.task
        assert isinstance(task, MaskedTask)
        result = evaluate_masked(bundle.model, task, stream, stream, bundle.tokenizer)
        return result.with_remarks(documents.remarks)


class MaskedData(DataModule):
    """Windows of packed documents, with other tokens masked in every epoch."""

    metric = Metric("loss", higher_is_better=False)

    def __init__(
        self, task: MaskedTask, corpus: Corpus, tokenizer: Tokenizer, recipe: "Recipe"
    ) -> None:
        self.task = task
        self.tokenizer = tokenizer
        self.streams = TokenStreams(corpus, tokenizer, recipe)
        self.lengths = self.streams.train.lengths
        self.facts = self.streams.facts
        self.remarks = []

    def batch_indices(self, epoch: int) -> list[Ids]:
        return self.streams.batch_indices(epoch)

    def batch(self, indices: Ids, rng: np.random.Generator, epoch: int = 0) -> MaskedBatch:
        return _mask(self.task, self.streams.windows(indices), self.tokenizer, rng)

    def validate(self, model: Encoder) -> dict[str, float]:
        streams = self.streams
        return masked_scores(
            model,
            self.task,
            streams.validation,
            streams.length,
            streams.rows,
            self.tokenizer,
            self.deadline,
        )

    def sample(self, model: Encoder) -> str:
        _, token, prediction = self._predictions(model, 1)[0]
        return f"{token} {prediction}"

    def evaluate(self, model: Encoder) -> EvalResult:
        result = evaluate_masked(
            model,
            self.task,
            self.streams.validation,
            self.streams.train,
            self.tokenizer,
            self.deadline,
        )
        columns = ("context", "masked token", "prediction")
        table = Table("Masked tokens", columns, tuple(self._predictions(model, 8)))
        return EvalResult(
            scores=result.scores,
            examples=result.examples,
            baseline=result.baseline,
            baseline_name=result.baseline_name,
            samples=(table,),
            remarks=result.remarks,
            complete=result.complete,
        )

    def _predictions(self, model: Encoder, count: int) -> list[tuple[str, str, str]]:
        """The first masked tokens of the validation split: context, token, prediction."""
        tokenizer = self.tokenizer
        streams = self.streams
        device = model.embedding.weight.device
        batches = masked_in_order(self.task, streams.validation, streams.length, 1, tokenizer)
        batch = next(batches).to(device)
        windows = batch.windows
        with inference(model):
            logits = model(windows.ids, positions=windows.positions)[0]  # one window: (T, V)
        best = logits.argmax(dim=-1)
        rows = []
        positions = batch.masked_positions.tolist()[:count]
        for position, target in zip(positions, batch.targets.tolist(), strict=False):
            nearby = windows.ids[0, max(0, position - CONTEXT) : position + CONTEXT].tolist()
            context = ""
            for id in nearby:
                context += "___" if id == tokenizer.mask_id else tokenizer.decode([id])
            rows.append((context, tokenizer.token(target), tokenizer.token(int(best[position]))))
        return rows


def evaluate_masked(
    model: Encoder,
    task: MaskedTask,
    stream: TokenizedTexts,
    train: TokenizedTexts,
    tokenizer: Tokenizer,
    deadline: float | None = None,
) -> EvalResult:
    """Loss and accuracy on masked tokens, next to a model that knows token frequencies only."""
    length = model.config.length
    scores = masked_scores(model, task, stream, length, EVAL_ROWS, tokenizer, deadline)
    complete = not is_over(deadline)
    scores["perplexity"] = math.exp(min(scores["loss"], MAX_EXPONENT))
    batches = masked_in_order(task, stream, length, EVAL_ROWS, tokenizer)
    targets = np.concatenate([batch.targets.numpy() for batch in batches])
    baseline = unigram_loss(train, tokenizer.vocab_size, targets)
    return EvalResult(
        scores=scores,
        examples=len(stream),
        baseline={"loss": baseline},
        baseline_name="token frequencies",
        remarks=() if complete else (SHORT_OF_TIME,),
        complete=complete,
    )


def masked_scores(
    model: Encoder,
    task: MaskedTask,
    stream: TokenizedTexts,
    length: int,
    rows: int,
    tokenizer: Tokenizer,
    deadline: float | None = None,
) -> dict[str, float]:
    """Nats per masked token, and accuracy; the same tokens are masked every time."""
    device = model.embedding.weight.device
    total = 0.0
    hits = 0
    count = 0
    with inference(model):
        batches = masked_in_order(task, stream, length, rows, tokenizer)
        for batch in until(deadline, batches):
            adapt_threads()
            batch_loss, batch_hits = task.loss_and_hits(model, batch.to(device))
            total += batch_loss
            hits += batch_hits
            count += batch.num_targets
    return {"loss": total / max(1, count), "accuracy": hits / max(1, count)}


def masked_in_order(
    task: MaskedTask, stream: TokenizedTexts, length: int, rows: int, tokenizer: Tokenizer
) -> Iterator[MaskedBatch]:
    for number, batch in enumerate(windows_in_order(stream, length, rows)):
        yield _mask(task, batch, tokenizer, np.random.default_rng((0, number)))


def _mask(
    task: MaskedTask, windows: Windows, tokenizer: Tokenizer, rng: np.random.Generator
) -> MaskedBatch:
    maskable = np.ones(tokenizer.vocab_size, dtype=np.bool_)
    maskable[list(tokenizer.special_ids)] = False
    return task.mask(windows, tokenizer.mask_id, maskable, rng)
