"""`qkv train language`: the next token of running text."""

import math
from collections import Counter
from collections.abc import Iterable

import numpy as np
import torch

from qkv.bundle import Bundle
from qkv.data.encoded import Encoded
from qkv.engine.batching import inference
from qkv.model import Decoder, DecoderOnly, Model
from qkv.model.build import ModelConfig
from qkv.report import Table
from qkv.tasks.token_tasks import Ids, LanguageTask, Windows, in_order
from qkv.text import Tokenizer
from qkv.training.jobs.base import DataModule, EvalResult, Metric, unsuited
from qkv.training.jobs.text_data import Corpus, OnRunningText, Streams, read_documents, stream_of
from qkv.training.recipe import Data, Recipe, TaskChoice


class Language(OnRunningText):
    name, title = "language", "A language model"

    def task(self, parts: Corpus) -> TaskChoice:
        return LanguageTask()

    def fit(self, config: ModelConfig, vocabulary: int, parts: Corpus) -> ModelConfig:
        if not isinstance(config, DecoderOnly):
            raise unsuited("language", "decoder_only", config)
        embedding = config.embedding.model_copy(update={"vocabulary": vocabulary})
        return config.model_copy(update={"embedding": embedding})

    def data_module(self, parts: Corpus, tokenizer: Tokenizer, recipe: Recipe) -> DataModule:
        return LanguageData(parts, tokenizer, recipe)

    def answers(self, model: Model) -> bool:
        return isinstance(model, Decoder)

    def evaluate(self, bundle: Bundle, data: Data, recipe: Recipe | None) -> EvalResult:
        assert isinstance(bundle.model, Decoder)
        assert bundle.tokenizer is not None
        documents = read_documents(data.files, data.text)
        stream = stream_of(documents, bundle.tokenizer, documents.sha256)
        texts = (piece.text for piece in documents)
        return evaluate_language(bundle.model, stream, texts)


class LanguageData(DataModule):
    """Windows of packed documents."""

    metric = Metric("loss", higher_is_better=False)

    def __init__(self, corpus: Corpus, tokenizer: Tokenizer, recipe: Recipe) -> None:
        self.corpus, self.tokenizer = corpus, tokenizer
        self.streams = Streams(corpus, tokenizer, recipe)
        self.lengths = self.streams.train.lengths
        self.facts, self.remarks = self.streams.facts, []

    def order(self, epoch: int) -> list[Ids]:
        return self.streams.order(epoch)

    def batch(self, numbers: Ids, draws: np.random.Generator, epoch: int = 0) -> Windows:
        return self.streams.windows(numbers)

    def validate(self, model: Decoder) -> dict[str, float]:
        s = self.streams
        return {"loss": stream_loss(model, s.validation, s.length, s.rows)}

    def sample(self, model: Decoder) -> str:
        return continue_greedily(model, self.tokenizer, 60, self.streams.length)

    def evaluate(self, model: Decoder) -> EvalResult:
        texts = (piece.text for piece in self.corpus.validation)
        judged = evaluate_language(model, self.streams.validation, texts)
        rows = ((continue_greedily(model, self.tokenizer, 200, self.streams.length),),)
        table = Table("What it writes, always taking the likeliest token", ("text",), rows)
        return EvalResult(
            {"loss": judged.scores["loss_per_token"], **judged.scores},
            judged.examples, judged.baseline, judged.baseline_is, samples=(table,),
        )  # fmt: skip


def evaluate_language(model: Decoder, stream: Encoded, texts: Iterable[str]) -> EvalResult:
    """The same surprise shared out over tokens, characters and bytes.

    Only the last two can be compared between models with different tokenizers. Each document's
    first token is given and its end is predicted: as many predictions as tokens.
    """
    loss = stream_loss(model, stream, model.config.length, 16)
    counts, size = Counter[str](), 0
    for text in texts:
        counts.update(text)
        size += len(text.encode("utf-8", "surrogatepass"))
    characters, tokens = counts.total(), len(stream.ids) - len(stream)
    scores = {
        "loss_per_token": loss,
        "perplexity": math.exp(min(loss, 700.0)),
        "loss_per_character": loss * tokens / max(1, characters),
        "loss_per_byte": loss * tokens / max(1, size),
        "tokens": tokens,
    }
    by_letters = -sum(n / characters * math.log(n / characters) for n in counts.values())
    return EvalResult(
        scores, len(stream), {"loss_per_character": by_letters}, "the text's letter frequencies"
    )


def stream_loss(model: Decoder, stream: Encoded, length: int, rows: int) -> float:
    """Nats a token over the whole stream, each token predicted once."""
    device = model.embedding.weight.device
    task, total, count = LanguageTask(), 0.0, 0
    with inference(model):
        for windows in in_order(stream, length, rows):
            total += float(task.loss(model, windows.to(device)))
            count += windows.targets
    return total / max(1, count)


def continue_greedily(model: Decoder, tokenizer: Tokenizer, count: int, length: int) -> str:
    """The most likely continuation of nothing, read with a cache."""
    device = model.embedding.weight.device
    new = torch.tensor([tokenizer.prefix_ids or (tokenizer.eos_id,)], device=device)
    never = [
        *tokenizer.special_ids,
        *range(tokenizer.vocab_size, model.config.embedding.vocabulary),
    ]
    cache, written = model.empty_cache(1, length), list[int]()
    with inference(model):
        while len(written) < min(count, length - 1):
            scores = model(new, cache=cache)[0, -1]
            scores[never] = -torch.inf
            written.append(int(scores.argmax()))
            new = torch.tensor([[written[-1]]], device=device)
    return tokenizer.decode(written)
