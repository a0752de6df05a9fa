"""`qkv train embed`: texts that mean the same come near each other."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from qkv.bundle import Bundle
from qkv.data import (
    Labelled,
    Pair,
    ScoredPair,
    built_in,
    read_labelled,
    read_lines,
    read_pairs,
    read_scored,
    split,
)
from qkv.data.encoded import Ids, encode, near_length
from qkv.data.files import is_table
from qkv.data.table import is_titled
from qkv.engine.batching import PaddedBatch, batched_outputs
from qkv.errors import DataError, UsageError
from qkv.metrics.text_scores import bag_of_words_vectors, score_clusters, spearman
from qkv.model import Encoder, EncoderOnly, Model, TextVector
from qkv.model.build import ModelConfig
from qkv.report import Table
from qkv.tasks.text_tasks import EmbedTask, Twins, contrast, vectors
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
)
from qkv.training.jobs.classify import with_output
from qkv.training.jobs.text_data import Cut, cut_texts, data_facts, tell_leaks
from qkv.training.jobs.translate import validation_pairs
from qkv.training.recipe import Data, Recipe, TaskChoice

Kind = Literal["pairs", "labels", "texts", "scores"]
METRICS: dict[Kind, Metric] = {
    "pairs": Metric("retrieval", higher_is_better=True),
    "labels": Metric("v_measure", higher_is_better=True),
    "texts": Metric("loss", higher_is_better=False),
    "scores": Metric("spearman", higher_is_better=True),
}
READERS: dict[Kind, tuple[Callable[[list[Path]], Sequence[Any]], tuple[str, ...]]] = {
    "scores": (read_scored, ("source", "target", "score")),
    "labels": (read_labelled, ("text", "label")),
    "pairs": (read_pairs, ("source", "target")),
}
WATCHED = 1000  # held-out examples looked at in each evaluation


@dataclass(frozen=True)
class Related:
    """Two texts and what is known of them; one alone has itself beside it."""

    one: str
    other: str
    label: str | None = None
    score: float | None = None


class Embedding(Job[Parts[Related]]):
    name, title = "embed", "An embedding model"
    roles = ("text", "label", "source", "target", "score")
    tokens = "wordpiece"
    vocabulary = 10_000
    batch, steps, epochs = 3000, 2000, 10

    def load(self, data: Data, seed: int) -> Parts[Related]:
        kind = kind_of(data)
        examples = _read(kind, data.files, data)
        if data.validation:
            train, validation = examples, _validation(kind, data)
        else:
            train, validation = split(examples, seed, data.validation_fraction)
        if kind == "labels" and len({e.label for e in train}) == len(train):
            raise DataError("every text has a label of its own; labels must join some of them")
        read = (*examples, *(validation if data.validation else ()))
        said = (f"{e.one}\0{e.other}\0{e.label}\0{e.score}" for e in read)
        return Parts(train, validation, fingerprint(said))

    def texts(self, parts: Parts[Related]) -> Iterable[str]:
        for example in parts.train:
            yield example.one
            if example.other != example.one:
                yield example.other

    def task(self, parts: Parts[Related]) -> TaskChoice:
        return EmbedTask(supervision=known_of(parts.train))

    def fit(self, config: ModelConfig, vocabulary: int, parts: Parts[Related]) -> ModelConfig:
        output = config.output if isinstance(config.output, TextVector) else TextVector()
        return with_output(self.name, config, vocabulary, output)

    def data_module(
        self, parts: Parts[Related], tokenizer: Tokenizer, recipe: Recipe
    ) -> DataModule:
        return EmbedData(parts, tokenizer, recipe)

    def answers(self, model: Model) -> bool:
        return isinstance(model, Encoder) and isinstance(model.config.output, TextVector)

    def evaluate(self, bundle: Bundle, data: Data, recipe: Recipe | None) -> EvalResult:
        assert isinstance(bundle.model, Encoder)
        assert bundle.tokenizer is not None
        kind = kind_of(data)
        examples = _read(kind, data.files, data)
        return evaluate_embeddings(bundle.model, bundle.tokenizer, kind, examples)


class EmbedData(DataModule):
    """Twins in batches of near length on both sides."""

    def __init__(self, parts: Parts[Related], tokenizer: Tokenizer, recipe: Recipe) -> None:
        assert isinstance(recipe.model, EncoderOnly)
        assert isinstance(recipe.task, EmbedTask)
        self.parts, self.tokenizer, self.task = parts, tokenizer, recipe.task
        self.seed, self.budget = recipe.seed, recipe.batch
        self.metric = METRICS[recipe.task.supervision]
        self.remarks = []
        self.one = self._cut((e.one for e in parts.train), "train-one", recipe)
        self.other = self.one  # a twin is one of the same texts,
        if recipe.task.supervision in ("pairs", "scores"):  # unless it is given
            self.other = self._cut((e.other for e in parts.train), "train-other", recipe)
        self.remarks += self.one.remarks("training")
        tell_leaks([e.one for e in parts.train], [e.one for e in parts.validation], self.remarks)
        names = sorted({e.label for e in parts.train if e.label is not None})
        numbers = {name: number for number, name in enumerate(names)}
        self.labels = np.array([numbers[e.label] for e in parts.train if e.label is not None])
        self.scores = np.array([e.score for e in parts.train if e.score is not None])
        lengths = self._sides(self._twins(0))
        self.lengths = lengths.sum(axis=1)
        self.facts = data_facts(lengths, len(parts.validation), self.budget, self.seed)
        if names:
            self.facts.append(("labels", f"{len(names)}"))

    def order(self, epoch: int) -> list[Ids]:
        """Each batch (n, 2): texts, and which one stands beside each."""
        twins = self._twins(epoch)
        draws = np.random.default_rng((self.seed, epoch))
        batches = near_length(self._sides(twins), self.budget, draws)
        return [np.stack([batch, twins[batch]], axis=1) for batch in batches]

    def batch(self, numbers: Ids, draws: np.random.Generator, epoch: int = 0) -> Twins:
        pad, own = self.tokenizer.pad_id, numbers[:, 0]
        one = PaddedBatch.of([self.one[i] for i in own], pad)
        other = PaddedBatch.of([self.other[i] for i in numbers[:, 1]], pad)
        labels = torch.from_numpy(self.labels[own]) if len(self.labels) else None
        scores = torch.from_numpy(self.scores[own]).float() if len(self.scores) else None
        return Twins(one, other, labels, scores)

    def validate(self, model: Encoder) -> dict[str, float]:
        if self.task.supervision == "texts":
            return {"loss": self._loss(model)}
        kind, validation = self.task.supervision, self.parts.validation[:WATCHED]
        return dict(
            evaluate_embeddings(model, self.tokenizer, kind, validation, baseline=False).scores
        )

    def sample(self, model: Encoder) -> str:
        """A held-out text and the one nearest to it."""
        texts = list(dict.fromkeys(e.one for e in self.parts.validation[:200]))
        if len(texts) < 2:
            return ""
        cut = cut_texts(texts, self.tokenizer, model.config.context_length)
        found = embed_texts(model, cut)
        likeness = found @ found[0]
        likeness[0] = -np.inf
        return f"{texts[0][:50]} ~ {texts[int(likeness.argmax())][:50]}"

    def evaluate(self, model: Encoder) -> EvalResult:
        if self.task.supervision == "texts":
            return EvalResult({"loss": self._loss(model)}, len(self.parts.validation))
        return evaluate_embeddings(
            model, self.tokenizer, self.task.supervision, self.parts.validation
        )

    def _cut(self, texts: Iterable[str], part: str, recipe: Recipe) -> Cut:
        key = part_key(self.parts, part, recipe)
        assert isinstance(recipe.model, EncoderOnly)
        return Cut(encode(texts, self.tokenizer, key), self.tokenizer, recipe.model.context_length)

    def _sides(self, twins: Ids) -> Ids:
        sides = [self.one.lengths, self.other.lengths[twins]]
        return np.maximum(1, np.stack(sides, axis=1))

    def _twins(self, epoch: int) -> Ids:
        """Which text stands beside each one: with labels, another that has the same."""
        own = np.arange(len(self.parts.train))
        if self.task.supervision != "labels":
            return own
        draws, twins = np.random.default_rng((self.seed, epoch, 1)), own.copy()
        members: dict[int, list[int]] = defaultdict(list)
        for i, label in enumerate(self.labels.tolist()):
            members[label].append(i)
        for group in members.values():
            shuffled = draws.permutation(group)
            twins[shuffled] = np.roll(shuffled, 1)  # nobody is their own twin, unless alone
        return twins

    @torch.no_grad()
    def _loss(self, model: Encoder) -> float:
        """How surprising it is, with dropout, which of the held-out texts is which."""
        texts = [e.one for e in self.parts.validation[:WATCHED]]
        cut = cut_texts(texts, self.tokenizer, self.one.length)
        was, device = model.training, model.embedding.weight.device
        model.train()
        total = 0.0
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            lengths = np.maximum(1, cut.lengths[:, None])
            for numbers in near_length(lengths, self.budget, np.random.default_rng(0)):
                side = PaddedBatch.of([cut[i] for i in numbers], self.tokenizer.pad_id).to(device)
                one, other = (vectors(model, side) for _ in range(2))
                total += float(contrast(one, other, self.task.temperature, None))
        model.train(was)
        return total / len(texts)


def evaluate_embeddings(
    model: Encoder,
    tokenizer: Tokenizer,
    kind: Kind,
    examples: Sequence[Related],
    baseline: bool = True,
) -> EvalResult:
    """Scored pairs: rank correlation. Labels: k-means. Pairs: how often the twin is nearest."""
    if kind == "texts":
        raise DataError("texts alone cannot be measured; give labels, pairs, or pairs with scores")
    one = [e.one for e in examples]
    other = [e.other for e in examples]
    both = one if kind == "labels" else [*one, *other]
    cut = cut_texts(both, tokenizer, model.config.context_length)
    found = _scores(kind, examples, embed_texts(model, cut))
    counted = _scores(kind, examples, bag_of_words_vectors(both)) if baseline else {}
    rows = tuple((e.one, e.other if kind != "labels" else str(e.label)) for e in examples[:8])
    columns = ("text", "label" if kind == "labels" else "its twin")
    return EvalResult(
        found,
        len(examples),
        counted,
        "cosines of TF-IDF vectors" if baseline else "",
        samples=(Table("Held-out examples", columns, rows),),
        remarks=tuple(cut.remarks("measured")),
    )


def _scores(kind: Kind, examples: Sequence[Related], found: Any) -> dict[str, float]:
    if kind == "labels":
        scores = score_clusters(found, [str(e.label) for e in examples], seed=0)
        return {
            "v_measure": scores.v_measure,
            "adjusted_rand": scores.adjusted_rand,
            "accuracy": scores.accuracy,
        }
    half = len(examples)
    likeness = found[:half] @ found[half:].T  # (N, N), sparse if the vectors are
    if kind == "scores":
        truth = [0.0 if e.score is None else e.score for e in examples]
        return {"spearman": spearman(likeness.diagonal().tolist(), truth)}
    nearest = np.asarray(likeness.argmax(axis=1)).ravel()
    return {"retrieval": float((nearest == np.arange(half)).mean())}


def embed_texts(model: Encoder, texts: Sequence[Ids]) -> Any:
    """A vector of length 1 for each text, (N, D) numpy."""
    return torch.nn.functional.normalize(batched_outputs(model, texts), dim=-1).numpy()


def known_of(examples: Sequence[Related]) -> Kind:
    if examples[0].score is not None:
        return "scores"
    if examples[0].label is not None:
        return "labels"
    return "texts" if all(e.one == e.other for e in examples) else "pairs"


def kind_of(data: Data) -> Kind:
    """What the data knows of its texts: by the columns asked for, else by what the file is."""
    if data.score is not None:
        return "scores"
    if data.source is not None or data.target is not None:
        return "pairs"
    if data.label is not None or not data.files:
        return "labels"
    if data.text is not None or not all(is_table(Path(file)) for file in data.files):
        return "texts"
    fits = [kind for kind in READERS if _can_be_read(kind, data.files)]
    if len(fits) > 1:  # two columns may be anything, unless their titles say what they are
        fits = [kind for kind in fits if is_titled(Path(data.files[0]), READERS[kind][1])]
    if len(fits) == 1:
        return fits[0]
    raise UsageError(
        f"what do the columns of {data.files[0]} say? give --text and --label, or --source and "
        "--target (with --score if there is one), or --text alone"
    )


def _can_be_read(kind: Kind, files: Sequence[str]) -> bool:
    try:
        READERS[kind][0](paths(files))
    except DataError:
        return False
    return True


def _read(kind: Kind, files: Sequence[str], data: Data) -> list[Related]:
    if kind == "labels":
        found: list[Labelled] = (
            read_labelled(paths(files), data.text, data.label) if files else built_in("embed")
        )
        return [Related(e.text, e.text, e.label) for e in found]
    if kind == "texts":
        return [Related(text, text) for text in read_lines(paths(files), data.text)]
    if kind == "scores":
        return _scaled(read_scored(paths(files), data.source, data.target, data.score))
    pairs: list[Pair] = read_pairs(paths(files), data.source, data.target)
    return [Related(pair.source, pair.target) for pair in pairs]


def _validation(kind: Kind, data: Data) -> list[Related]:
    if kind == "pairs":
        return [Related(pair.source, pair.target) for pair in validation_pairs(data)]
    return _read(kind, data.validation, data)


def _scaled(pairs: Sequence[ScoredPair]) -> list[Related]:
    """Scores brought to 0…1, whatever their range: only their order and distances matter."""
    low, high = min(p.score for p in pairs), max(p.score for p in pairs)
    if low == high:
        raise DataError(f"every pair has the score {low:g}; there is nothing to learn from that")
    return [Related(p.source, p.target, None, (p.score - low) / (high - low)) for p in pairs]
