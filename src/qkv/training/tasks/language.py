"""`qkv train language`: predict the next token of running text (causal language modeling)."""

import math
from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING, Literal

import numpy as np
from torch import Tensor

from qkv.bundle import Bundle
from qkv.data import TokenizedTexts
from qkv.engine import inference
from qkv.engine.generate import Greedy, Request, Sampling, SuppressTokens, decode_one
from qkv.errors import ConfigError
from qkv.machine import adapt_threads
from qkv.model import Decoder, Fraction, Model, PredictionHead, TiedLogits
from qkv.report import Table
from qkv.text import Tokenizer
from qkv.training.loss import fused_cross_entropy
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
    windows_in_order,
)

if TYPE_CHECKING:
    from qkv.training.recipe import Recipe

EVAL_ROWS = 16  # windows per batch
MAX_EXPONENT = 700.0  # exp of more overflows


class LanguageTask(RunningTextTask):
    """Cross-entropy of each next token."""

    kind: Literal["language"] = "language"
    label_smoothing: Fraction = 0.0

    title = "A language model"
    summary = "the next token: text files or folders"
    measures = (
        "loss per token, character and byte, each document's end included; letter frequencies"
    )
    usage = ("qkv evaluate {0} other.txt",)
    next_steps = (
        'qkv generate {0} "Once upon a time"',
        'qkv explain "Once upon a time" --model {0} --why',
    )
    architecture = "decoder_only"
    presets = "language"

    def loss(self, model: Decoder, batch: Windows) -> Tensor:
        states = model.states(batch.ids, mask=batch.mask, positions=batch.positions)
        output = model.output
        if not isinstance(output, TiedLogits | PredictionHead):
            raise ConfigError("to learn the next token, a model needs the output NextToken")
        lazy = output.lazy(states.flatten(0, 1), model.embedding.weight)
        return fused_cross_entropy(lazy, batch.targets.flatten(), self.label_smoothing)

    def data_module(self, split: Corpus, tokenizer: Tokenizer, recipe: "Recipe") -> "LanguageData":
        return LanguageData(split, tokenizer, recipe)

    @classmethod
    def matches(cls, model: Model) -> bool:
        return isinstance(model, Decoder)

    @classmethod
    def evaluate(cls, bundle: Bundle, data: DataConfig, recipe: "Recipe | None") -> EvalResult:
        assert isinstance(bundle.model, Decoder)
        assert bundle.tokenizer is not None
        documents = read_documents(data.files, data)
        stream = token_stream(documents, bundle.tokenizer, documents.sha256)
        texts = (piece.text for piece in documents)
        result = evaluate_language(bundle.model, stream, texts)
        return result.with_remarks(documents.remarks)


class LanguageData(DataModule):
    """Windows of packed documents."""

    metric = Metric("loss", higher_is_better=False)

    def __init__(self, corpus: Corpus, tokenizer: Tokenizer, recipe: "Recipe") -> None:
        self.corpus = corpus
        self.tokenizer = tokenizer
        self.streams = TokenStreams(corpus, tokenizer, recipe)
        self.lengths = self.streams.train.lengths
        self.facts = self.streams.facts
        self.remarks = []

    def batch_indices(self, epoch: int) -> list[Ids]:
        return self.streams.batch_indices(epoch)

    def batch(self, indices: Ids, rng: np.random.Generator, epoch: int = 0) -> Windows:
        return self.streams.windows(indices)

    def validate(self, model: Decoder) -> dict[str, float]:
        streams = self.streams
        loss = stream_loss(model, streams.validation, streams.length, streams.rows, self.deadline)
        return {"loss": loss}

    def sample(self, model: Decoder) -> str:
        return generate_greedily(model, self.tokenizer, 60, self.streams.length)

    def evaluate(self, model: Decoder) -> EvalResult:
        texts = (piece.text for piece in self.corpus.validation)
        result = evaluate_language(model, self.streams.validation, texts, self.deadline)
        text = generate_greedily(model, self.tokenizer, 200, self.streams.length)
        return EvalResult(
            scores={"loss": result.scores["loss_per_token"], **result.scores},
            examples=result.examples,
            baseline=result.baseline,
            baseline_name=result.baseline_name,
            samples=(Table("What it generates with greedy decoding", ("text",), ((text,),)),),
            remarks=result.remarks,
            complete=result.complete,
        )


def evaluate_language(
    model: Decoder, stream: TokenizedTexts, texts: Iterable[str], deadline: float | None = None
) -> EvalResult:
    """The same loss per token, per character and per byte.

    Only the last two can be compared between models with different tokenizers. The first token of
    a document is given and its eos is predicted: as many predictions as tokens.
    """
    loss = stream_loss(model, stream, model.config.length, EVAL_ROWS, deadline)
    complete = not is_over(deadline)
    letters = Counter[str]()
    num_bytes = 0
    for text in texts:
        letters.update(text)
        num_bytes += len(text.encode("utf-8", "surrogatepass"))
    characters = letters.total()
    tokens = len(stream.ids) - len(stream)
    entropy = -sum(n / characters * math.log(n / characters) for n in letters.values())
    return EvalResult(
        scores={
            "loss_per_token": loss,
            "perplexity": math.exp(min(loss, MAX_EXPONENT)),
            "loss_per_character": loss * tokens / max(1, characters),
            "loss_per_byte": loss * tokens / max(1, num_bytes),
            "tokens": tokens,
        },
        examples=len(stream),
        baseline={"loss_per_character": entropy},
        baseline_name="the text's letter frequencies",
        remarks=() if complete else (SHORT_OF_TIME,),
        complete=complete,
    )


def stream_loss(
    model: Decoder,
    stream: TokenizedTexts,
    length: int,
    rows: int,
    deadline: float | None = None,
) -> float:
    """Nats per token over the stream, or over as much as fits, each token predicted once."""
    device = model.embedding.weight.device
    task = LanguageTask()
    total = 0.0
    count = 0
    with inference(model):
        for batch in until(deadline, windows_in_order(stream, length, rows)):
            adapt_threads()
            total += float(task.loss(model, batch.to(device)))
            count += batch.num_targets
    return total / max(1, count)


def generate_greedily(model: Decoder, tokenizer: Tokenizer, count: int, length: int) -> str:
    """The most likely text of `count` tokens from an empty prompt, without special tokens."""
    max_tokens = min(count, length - 1)
    if max_tokens < 1:
        return ""
    sampling = Sampling((SuppressTokens(tuple(tokenizer.special_ids)),), Greedy())
    request = Request(tokenizer.prefix_ids or (tokenizer.eos_id,), max_tokens, sampling)
    tokens = [token.id for token in decode_one(model, request, tokenizer.vocab_size)]
    return tokenizer.decode(tokens)
