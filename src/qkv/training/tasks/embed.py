"""`qkv train embed`: vectors that are close where texts mean the same (contrastive learning)."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch
import torch.nn.functional as F
from pydantic import PositiveFloat
from torch import Tensor

from qkv.bundle import Bundle
from qkv.data import (
    BadRows,
    ScoredPair,
    built_in,
    has_known_header,
    is_table,
    label_remarks,
    read_labelled,
    read_lines,
    read_pairs,
    read_scored,
    split,
)
from qkv.engine import PaddedBatch
from qkv.errors import DataError, UsageError
from qkv.model import Encoder, Fraction, Model, ModelConfig, Size, TextVector
from qkv.text import Tokenizer
from qkv.training.tasks.task import (
    DataConfig,
    DataModule,
    EvalResult,
    Split,
    Task,
    fingerprint,
    paths,
    to_device,
)
from qkv.training.tasks.translate import validation_pairs

if TYPE_CHECKING:
    from qkv.training.recipe import Recipe

Supervision = Literal["pairs", "labels", "texts", "scores"]

Teacher = Literal["none", "lsa"]

TOKEN_DROPOUT = 0.3  # with a teacher

# How a table is read for each kind of supervision, and the titles of its columns.
READERS: dict[Supervision, tuple[Callable[..., Sequence[Any]], tuple[str, ...]]] = {
    "scores": (read_scored, ("source", "target", "score")),
    "labels": (read_labelled, ("text", "label")),
    "pairs": (read_pairs, ("source", "target")),
}


@dataclass(frozen=True)
class RelatedTexts:
    """Two texts and what is known about them; a single text is paired with itself."""

    first: str
    second: str
    label: str | None = None
    score: float | None = None


@dataclass(frozen=True)
class ContrastiveBatch:
    """Anchors and their positives, row by row.

    labels (B,): rows with the same label are not negatives of each other. scores (B,): the target
    similarity of each pair, from 0 to 1.
    """

    anchors: PaddedBatch
    positives: PaddedBatch
    labels: Tensor | None = None
    scores: Tensor | None = None

    @property
    def num_tokens(self) -> int:
        return self.anchors.tokens + self.positives.tokens

    @property
    def num_targets(self) -> int:
        return len(self.anchors)

    def to(self, device: torch.device) -> "ContrastiveBatch":
        return ContrastiveBatch(
            self.anchors.to(device),
            self.positives.to(device),
            to_device(self.labels, device),
            to_device(self.scores, device),
        )


@dataclass(frozen=True)
class DistillationBatch:
    """Texts and the unit vectors of a teacher for them, (B, C); zeros where it has none."""

    texts: PaddedBatch
    teacher: Tensor

    @property
    def num_tokens(self) -> int:
        return self.texts.tokens

    @property
    def num_targets(self) -> int:
        return len(self.texts)

    def to(self, device: torch.device) -> "DistillationBatch":
        return DistillationBatch(self.texts.to(device), self.teacher.to(device))


class EmbedTask(Task):
    """A contrastive loss, a regression on similarity scores, or distillation, by the supervision.

    pairs: the positive of a text is closer than all other texts of the batch (InfoNCE, van den
    Oord et al. 2018). labels: its positive is another text with the same label. scores: the cosine
    of a pair equals its score. texts: cosines are those of a teacher, latent semantic analysis of
    the training texts, which says what belongs together where nothing else does; without a
    teacher, the positive of a text is the text itself with other dropout (SimCSE, Gao et al.
    2021), which needs a pretrained model.
    """

    kind: Literal["embed"] = "embed"
    supervision: Supervision
    temperature: PositiveFloat = 0.05
    teacher: Teacher = "none"  # of texts alone
    teacher_components: Size = 100
    token_dropout: Fraction = 0.0  # fraction of tokens that only the teacher reads

    title = "An embedding model"
    summary = "vectors: texts with labels, pairs, scored pairs, or texts alone"
    measures = "rank correlation, clusters or retrieval; cosines of TF-IDF vectors and LSA"
    usage = ("qkv evaluate {0} test.csv -o mistakes.csv",)
    next_steps = (
        "qkv embed {0} --file texts.txt -o vectors.npy",
        'qkv similar {0} "one text" "another text"',
        "qkv cluster {0} texts.txt -o clusters.html",
        'qkv explain "your text" --model {0} --why',
    )
    columns = ("text", "label", "source", "target", "score")
    ranks_examples = True
    architecture = "encoder_only"
    presets = "embed"
    tokenizer_kind = "wordpiece"
    max_vocab_size = 10_000
    max_batch = 3000
    max_steps = 2000
    epochs = 10

    def loss(self, model: Encoder, batch: ContrastiveBatch | DistillationBatch) -> Tensor:
        if isinstance(batch, DistillationBatch):
            return distillation_loss(unit_vectors(model, batch.texts), batch.teacher)
        anchors = unit_vectors(model, batch.anchors)
        positives = unit_vectors(model, batch.positives)
        if batch.scores is not None:
            cosines = (anchors * positives).sum(dim=-1)
            return (cosines - batch.scores).square().sum()
        return contrastive_loss(anchors, positives, self.temperature, batch.labels)

    @classmethod
    def load(cls, data: DataConfig, seed: int) -> Split[RelatedTexts]:
        supervision = supervision_of(data)
        bad_rows = BadRows(data.skip_bad)
        examples = _read(supervision, data.files, data, bad_rows)
        everything = examples
        if data.validation:
            train = examples
            validation = _read_validation(supervision, data, bad_rows)
            everything = examples + validation
        else:
            train, validation = split(examples, seed, data.validation_fraction)
        if supervision == "labels" and len({e.label for e in train}) == len(train):
            raise DataError("every text has a label of its own; some texts must share a label")
        lines = (f"{e.first}\0{e.second}\0{e.label}\0{e.score}" for e in everything)
        remarks = bad_rows.remarks() + label_remarks(e.label for e in everything if e.label)
        return Split(train, validation, fingerprint(lines), tuple(remarks))

    @classmethod
    def texts(cls, split: Split[RelatedTexts]) -> Iterable[str]:
        for example in split.train:
            yield example.first
            if example.second != example.first:
                yield example.second

    @classmethod
    def for_data(cls, split: Split[RelatedTexts]) -> "EmbedTask":
        supervision = _supervision_of_examples(split.train)
        if supervision == "texts":
            return cls(supervision=supervision, teacher="lsa", token_dropout=TOKEN_DROPOUT)
        return cls(supervision=supervision)

    def for_finetuning(self) -> "EmbedTask":
        # A pretrained model knows more than a teacher made of the training texts alone.
        return self.model_copy(update={"teacher": "none", "token_dropout": 0.0})

    @classmethod
    def output(cls, config: ModelConfig, split: Split[RelatedTexts]) -> TextVector:
        if isinstance(config.output, TextVector):
            return config.output
        return TextVector()

    def data_module(
        self, split: Split[RelatedTexts], tokenizer: Tokenizer, recipe: "Recipe"
    ) -> DataModule:
        from qkv.training.tasks.embed_data import EmbedData

        return EmbedData(self, split, tokenizer, recipe)

    @classmethod
    def matches(cls, model: Model) -> bool:
        return isinstance(model, Encoder) and isinstance(model.config.output, TextVector)

    @classmethod
    def evaluate(cls, bundle: Bundle, data: DataConfig, recipe: "Recipe | None") -> EvalResult:
        from qkv.training.tasks.embed_data import evaluate_embeddings

        assert isinstance(bundle.model, Encoder)
        assert bundle.tokenizer is not None
        supervision = supervision_of(data)
        bad_rows = BadRows(data.skip_bad)
        examples = _read(supervision, data.files, data, bad_rows)
        result = evaluate_embeddings(bundle.model, bundle.tokenizer, supervision, examples)
        return result.with_remarks(bad_rows.remarks())


def contrastive_loss(
    anchors: Tensor, positives: Tensor, temperature: float, labels: Tensor | None
) -> Tensor:
    """InfoNCE with in-batch negatives in both directions, (B, D) twice -> a sum over rows."""
    logits = anchors @ positives.T / temperature  # (B, B)
    if labels is not None:
        # Texts with the anchor's label are not negatives; its own positive stays.
        same = labels[:, None] == labels
        same.fill_diagonal_(False)
        logits = logits.masked_fill(same, -torch.inf)
    targets = torch.arange(len(logits), device=logits.device)
    forward = F.cross_entropy(logits, targets, reduction="sum")
    backward = F.cross_entropy(logits.T, targets, reduction="sum")
    return (forward + backward) / 2


def distillation_loss(vectors: Tensor, teacher: Tensor) -> Tensor:
    """1 − cosine with the teacher's vector, summed; vectors (B, D), teacher (B, C), C ≤ D.

    The other D − C features are to be zero, so that cosines between texts are the teacher's too. A
    text for which the teacher has no vector costs nothing.
    """
    components = teacher.shape[1]
    cosines = (vectors[:, :components] * teacher).sum(dim=-1)
    known = teacher.square().sum(dim=-1)  # 1, or 0
    return (known - cosines).sum()


def unit_vectors(model: Encoder, texts: PaddedBatch) -> Tensor:
    """One L2-normalized vector for each text, (B, D)."""
    return F.normalize(model(texts.ids, texts.lengths).float(), dim=-1)


def supervision_of(data: DataConfig) -> Supervision:
    """What is known about the texts: by the columns asked for, else by what is in the file."""
    if data.score is not None:
        return "scores"
    if data.source is not None or data.target is not None:
        return "pairs"
    if data.label is not None or not data.files:
        return "labels"
    if data.text is not None or not all(is_table(Path(file)) for file in data.files):
        return "texts"
    options = [supervision for supervision in READERS if _is_readable(supervision, data.files)]
    if len(options) > 1:  # two columns may be anything, unless their titles say what they are
        first = Path(data.files[0])
        options = [each for each in options if has_known_header(first, READERS[each][1])]
    if len(options) == 1:
        return options[0]
    raise UsageError(
        f"the columns of {data.files[0]} could be several things; name them with text= and label=, "
        "or source= and target= (with score= if there is one), or text= alone"
    )


def _supervision_of_examples(examples: Sequence[RelatedTexts]) -> Supervision:
    if examples[0].score is not None:
        return "scores"
    if examples[0].label is not None:
        return "labels"
    if all(e.first == e.second for e in examples):
        return "texts"
    return "pairs"


def _is_readable(supervision: Supervision, files: Sequence[str]) -> bool:
    """Whether most rows can be read like that; those that cannot are reported later."""
    read, _ = READERS[supervision]
    bad_rows = BadRows(skip=True)
    try:
        examples = read(paths(files), bad_rows=bad_rows)
    except DataError:
        return False
    return len(examples) > bad_rows.count


def _read(
    supervision: Supervision, files: Sequence[str], data: DataConfig, bad_rows: BadRows
) -> list[RelatedTexts]:
    match supervision:
        case "labels" if files:
            labelled = read_labelled(paths(files), data.text, data.label, bad_rows=bad_rows)
            return [RelatedTexts(e.text, e.text, e.label) for e in labelled]
        case "labels":
            return [RelatedTexts(e.text, e.text, e.label) for e in built_in("embed")]
        case "texts":
            texts = read_lines(paths(files), data.text, bad_rows)
            return [RelatedTexts(text, text) for text in texts]
        case "scores":
            scored = read_scored(paths(files), data.source, data.target, data.score, bad_rows)
            return _rescale(scored)
        case "pairs":
            pairs = read_pairs(paths(files), data.source, data.target, bad_rows)
            return [RelatedTexts(pair.source, pair.target) for pair in pairs]


def _read_validation(
    supervision: Supervision, data: DataConfig, bad_rows: BadRows
) -> list[RelatedTexts]:
    if supervision == "pairs":
        pairs = validation_pairs(data, bad_rows)
        return [RelatedTexts(pair.source, pair.target) for pair in pairs]
    return _read(supervision, data.validation, data, bad_rows)


def _rescale(pairs: Sequence[ScoredPair]) -> list[RelatedTexts]:
    """Scores rescaled linearly to 0…1, whatever their range."""
    low = min(pair.score for pair in pairs)
    high = max(pair.score for pair in pairs)
    if low == high:
        raise DataError(f"every pair has the score {low:g}; there is nothing to learn from that")
    examples = []
    for pair in pairs:
        score = (pair.score - low) / (high - low)
        examples.append(RelatedTexts(pair.source, pair.target, score=score))
    return examples
