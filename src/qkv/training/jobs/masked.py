"""`qkv train masked`: hidden tokens of running text, which teaches an encoder what words mean."""

import math
from collections.abc import Iterator

import numpy as np

from qkv.bundle import Bundle
from qkv.data.encoded import Encoded
from qkv.engine.batching import inference
from qkv.model import Encoder, EncoderOnly, MaskedToken, Model
from qkv.model.build import ModelConfig
from qkv.report import Table
from qkv.tasks.token_tasks import Hidden, Ids, MaskedTask, Windows, in_order
from qkv.text import Tokenizer
from qkv.training.jobs.base import DataModule, EvalResult, Metric
from qkv.training.jobs.classify import with_output
from qkv.training.jobs.text_data import (
    Corpus,
    OnRunningText,
    Streams,
    frequencies_loss,
    read_documents,
    stream_of,
)
from qkv.training.recipe import Data, Recipe, TaskChoice


class Masked(OnRunningText):
    name, title = "masked", "An encoder that knows hidden words"

    def task(self, parts: Corpus) -> TaskChoice:
        return MaskedTask()

    def fit(self, config: ModelConfig, vocabulary: int, parts: Corpus) -> ModelConfig:
        output = config.output
        if not isinstance(output, MaskedToken) and isinstance(config, EncoderOnly):
            stack = config.encoder
            narrow = None if stack.embedding_width is None else stack.input_width
            output = MaskedToken(norm=stack.norm, dense_width=narrow)
        return with_output(self.name, config, vocabulary, output)

    def data_module(self, parts: Corpus, tokenizer: Tokenizer, recipe: Recipe) -> DataModule:
        return MaskedData(parts, tokenizer, recipe)

    def answers(self, model: Model) -> bool:
        return isinstance(model, Encoder) and isinstance(model.config.output, MaskedToken)

    def evaluate(self, bundle: Bundle, data: Data, recipe: Recipe | None) -> EvalResult:
        assert isinstance(bundle.model, Encoder)
        assert bundle.tokenizer is not None
        tokenizer = bundle.tokenizer
        documents = read_documents(data.files, data.text)
        stream = stream_of(documents, tokenizer, documents.sha256)
        task = MaskedTask() if recipe is None else recipe.task
        assert isinstance(task, MaskedTask)
        return evaluate_masked(bundle.model, task, stream, stream, tokenizer)


class MaskedData(DataModule):
    """Windows of packed documents, partly covered, elsewhere in every epoch."""

    metric = Metric("loss", higher_is_better=False)

    def __init__(self, corpus: Corpus, tokenizer: Tokenizer, recipe: Recipe) -> None:
        assert isinstance(recipe.task, MaskedTask)
        self.task, self.tokenizer = recipe.task, tokenizer
        self.streams = Streams(corpus, tokenizer, recipe)
        self.lengths = self.streams.train.lengths
        self.facts, self.remarks = self.streams.facts, []

    def order(self, epoch: int) -> list[Ids]:
        return self.streams.order(epoch)

    def batch(self, numbers: Ids, draws: np.random.Generator, epoch: int = 0) -> Hidden:
        return _hide(self.task, self.streams.windows(numbers), self.tokenizer, draws)

    def validate(self, model: Encoder) -> dict[str, float]:
        s = self.streams
        return hidden_scores(model, self.task, s.validation, s.length, s.rows, self.tokenizer)

    def sample(self, model: Encoder) -> str:
        return " ".join(self._guess(model, 1)[0][1:])

    def evaluate(self, model: Encoder) -> EvalResult:
        judged = evaluate_masked(
            model, self.task, self.streams.validation, self.streams.train, self.tokenizer
        )
        columns = ("around it", "hidden", "the model's guess")
        table = Table("Hidden words", columns, tuple(self._guess(model, 8)))
        return EvalResult(
            judged.scores, judged.examples, judged.baseline, judged.baseline_is, samples=(table,)
        )

    def _guess(self, model: Encoder, count: int) -> list[tuple[str, str, str]]:
        """The first hidden tokens of the held-out part: their surroundings, they, the guess."""
        s, t = self.streams, self.tokenizer
        device = model.embedding.weight.device
        batch = next(_covered(self.task, s.validation, s.length, 1, t)).to(device)
        w = batch.windows
        with inference(model):
            best = model(w.ids, positions=w.positions)[0].argmax(dim=-1)  # one window: (T, V)
        rows = []
        for place, wanted in list(zip(batch.places.tolist(), batch.wanted.tolist(), strict=True)):
            near = w.ids[0, max(0, place - 8) : place + 8].tolist()
            shown = "".join("___" if id == t.mask_id else t.decode([id]) for id in near)
            rows.append((shown, t.token(wanted), t.token(int(best[place]))))
        return rows[:count]


def evaluate_masked(
    model: Encoder, task: MaskedTask, stream: Encoded, learnt: Encoded, tokenizer: Tokenizer
) -> EvalResult:
    """Loss and hits on hidden tokens, beside knowing only how frequent each token is."""
    length = model.config.length
    scores = hidden_scores(model, task, stream, length, 16, tokenizer)
    scores["perplexity"] = math.exp(min(scores["loss"], 700.0))
    hidden = [b.wanted.numpy() for b in _covered(task, stream, length, 16, tokenizer)]
    baseline = frequencies_loss(learnt, tokenizer.vocab_size, np.concatenate(hidden))
    return EvalResult(scores, len(stream), {"loss": baseline}, "token frequencies")


def hidden_scores(
    model: Encoder, task: MaskedTask, stream: Encoded, length: int, rows: int, tokenizer: Tokenizer
) -> dict[str, float]:
    """Nats a hidden token, and the share guessed right; the same tokens are hidden every time."""
    device = model.embedding.weight.device
    total, hits, count = 0.0, 0, 0
    with inference(model):
        for batch in _covered(task, stream, length, rows, tokenizer):
            loss, right = task.evaluate(model, batch.to(device))
            total, hits, count = total + loss, hits + right, count + batch.targets
    return {"loss": total / max(1, count), "accuracy": hits / max(1, count)}


def _covered(
    task: MaskedTask, stream: Encoded, length: int, rows: int, tokenizer: Tokenizer
) -> Iterator[Hidden]:
    for number, windows in enumerate(in_order(stream, length, rows)):
        yield _hide(task, windows, tokenizer, np.random.default_rng((0, number)))


def _hide(
    task: MaskedTask, windows: Windows, tokenizer: Tokenizer, draws: np.random.Generator
) -> Hidden:
    words = np.ones(tokenizer.vocab_size, dtype=np.bool_)
    words[list(tokenizer.special_ids)] = False
    return task.hide(windows, tokenizer.mask_id, words, draws)
