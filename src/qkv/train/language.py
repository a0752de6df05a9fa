"""Training a language model from texts: the data, the run, and the bundle at its end."""

import copy
import hashlib
import json
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import torch

from qkv.bundle import Bundle
from qkv.bundle.bundle import TOKENIZER
from qkv.data import split
from qkv.errors import TrainingError
from qkv.model import Decoder, Model, build
from qkv.task.language import (
    LanguageTask,
    Stream,
    Windows,
    epoch_windows,
    in_order,
    shuffled,
)
from qkv.text import Tokenizer
from qkv.train.checkpoint import Progress, load_checkpoint, load_newest, save_checkpoint
from qkv.train.loop import Step, Trainer
from qkv.train.recipe import Recipe

RECIPE, METRICS, CHECKPOINTS = "recipe.toml", "metrics.jsonl", "checkpoints"


@dataclass(frozen=True)
class Evaluated:
    """The held-out loss after so many steps."""

    number: int
    loss: float
    best: bool
    sample: str


Event = Step | Evaluated


def fingerprint(documents: Sequence[str]) -> str:
    """The same for the same texts in the same order."""
    digest = hashlib.sha256()
    for document in documents:
        content = document.encode("utf-8", "surrogatepass")
        digest.update(len(content).to_bytes(8, "big") + content)
    return digest.hexdigest()


def evaluations(steps: int) -> int:
    """After how many steps to look at the held-out part: ten times in all."""
    return max(1, steps // 10)


def part_texts(documents: Sequence[str], share: float, seed: int) -> tuple[list[str], list[str]]:
    """Training and held-out texts: whole documents, or the end of the only one."""
    if len(documents) > 1:
        return split(documents, seed, share)
    (only,) = documents
    cut = int(len(only) * (1.0 - share))
    return [only[:cut]], [only[cut:]]


class Run:
    """One training run in its directory; `events()` goes through it, and can go on after a stop."""

    def __init__(
        self,
        recipe: Recipe,
        documents: Sequence[str],
        tokenizer: Tokenizer,
        directory: Path,
        device: torch.device,
    ) -> None:
        if fingerprint(documents) != recipe.data.sha256:
            raise TrainingError("the texts are not those the recipe was made for")
        self.recipe, self.tokenizer, self.directory, self.device = (
            recipe,
            tokenizer,
            directory,
            device,
        )
        train, held_out = part_texts(documents, recipe.data.held_out, recipe.seed)
        self.train = Stream.of(tokenizer.encode_many(train), tokenizer.end)
        self.held_out = Stream.of(tokenizer.encode_many(held_out), tokenizer.end)
        epoch_windows(self.train, recipe.model.length)  # too little text is said at once
        epoch_windows(self.held_out, 1)
        torch.manual_seed(recipe.seed)
        model = build(recipe.model, recipe.seed, device)
        assert isinstance(model, Decoder)
        self.model = model
        self.task = LanguageTask(recipe.smoothing)
        self.trainer = Trainer(
            model,
            self.task.loss,
            recipe.optimiser.build(model),
            recipe.schedule,
            recipe.steps,
            recipe.clip,
        )
        self.progress = Progress()

    @property
    def length(self) -> int:
        return self.recipe.model.length

    def resume(self, say: Callable[[str], None]) -> None:
        """Go on from the newest healthy checkpoint, and forget what was measured after it."""
        self.progress = load_newest(self.directory / CHECKPOINTS, self.trainer, say)
        path = self.directory / METRICS
        lines = path.read_text("utf-8").split("\n")[:-1] if path.exists() else []  # whole ones
        kept = [line for line in lines if json.loads(line)["step"] <= self.progress.done]
        path.write_text("".join(f"{line}\n" for line in kept), encoding="utf-8")

    def events(self) -> Iterator[Event]:
        """Steps, and evaluations with a checkpoint after each."""
        recipe = self.recipe
        for step in self.trainer.steps(self._batches(self.trainer.done)):
            self.progress = replace(
                self.progress,
                done=step.number,
                tokens=self.progress.tokens + step.tokens,
                seconds=self.progress.seconds + step.seconds,
            )
            self._record({"step": step.number, **asdict(step)})
            yield step
            if step.number % recipe.evaluate_every == 0 or step.number == recipe.steps:
                yield self._evaluate()

    def save(self) -> Path:
        """A checkpoint of where it is now."""
        return save_checkpoint(self.directory / CHECKPOINTS, self.trainer, self.progress)

    def seconds_a_step(self, steps: int = 6) -> float:
        """What a step takes here, measured on a copy that is thrown away."""
        model = copy.deepcopy(self.model)
        r = self.recipe
        trial = Trainer(model, self.task.loss, r.optimiser.build(model), r.schedule, steps, r.clip)
        state = torch.get_rng_state()
        times = [step.seconds for step in trial.steps(self._batches(0))]
        torch.set_rng_state(state)
        return statistics.median(times[1:])

    def fit_to(self, steps: int) -> None:
        """The same run with another number of steps; only before the first of them."""
        changes = {"steps": steps, "evaluate_every": evaluations(steps)}
        self.recipe = self.recipe.model_copy(update=changes)
        self.trainer.total = steps

    def held_out_loss(self) -> float:
        """Nats a token over the whole held-out part."""
        return evaluate(self.model, self.held_out, self.length, self.recipe.batch)

    def finish(self) -> Path:
        """The run's directory becomes a bundle of the best weights, with all that led to them."""
        best = self.progress.best_step
        if best is not None and best != self.progress.done:
            load_checkpoint(self.directory / CHECKPOINTS / f"step-{best:08d}", self.trainer)
        kept = {name: (self.directory / name).read_text("utf-8") for name in (RECIPE, METRICS)}
        Bundle(self.model.eval(), self.tokenizer).save(
            self.directory, beside=kept, replaces=(RECIPE, METRICS, TOKENIZER), moves=(CHECKPOINTS,)
        )
        return self.directory

    def _batches(self, done: int) -> Iterator[list[Windows]]:
        """From the step after `done` on; a pure function of the recipe and the step."""
        recipe, part = self.recipe, max(1, self.recipe.batch // self.recipe.accumulate)
        per_epoch = max(1, epoch_windows(self.train, self.length) // recipe.batch)
        epoch, skip = divmod(done, per_epoch)
        while True:
            batches = shuffled(self.train, self.length, recipe.batch, recipe.seed, epoch)
            for i, batch in enumerate(batches):
                if i >= skip:
                    yield [piece.to(self.device) for piece in batch.parts(part)]
            epoch, skip = epoch + 1, 0

    def _evaluate(self) -> Evaluated:
        loss, done = self.held_out_loss(), self.progress.done
        best = self.progress.best is None or loss < self.progress.best
        if best:
            self.progress = replace(self.progress, best=loss, best_step=done)
        self.save()
        self._record({"step": done, "held_out_loss": loss, "tokens_seen": self.progress.tokens})
        return Evaluated(done, loss, best, self.sample())

    def sample(self, count: int = 60) -> str:
        """What the model writes now, always the most likely token."""
        return continue_greedily(self.model, self.tokenizer, count, self.length)

    def _record(self, line: dict[str, object]) -> None:
        with (self.directory / METRICS).open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")


@torch.no_grad()
def evaluate(model: Model, stream: Stream, length: int, batch: int) -> float:
    """Nats a token over the whole stream, each token predicted once."""
    device = next(model.parameters()).device
    was = model.training
    model.eval()
    task, total, count = LanguageTask(), 0.0, 0
    for windows in in_order(stream, length, batch):
        assert isinstance(model, Decoder)
        total += float(task.loss(model, windows.to(device)))
        count += windows.targets
    model.train(was)
    return total / max(1, count)


@torch.no_grad()
def continue_greedily(model: Decoder, tokenizer: Tokenizer, count: int, length: int) -> str:
    """The most likely continuation of nothing, read with a cache."""
    was = model.training
    model.eval()
    device = model.embedding.weight.device
    new = torch.tensor([[tokenizer.end]], device=device)
    cache, written = model.empty_cache(1, length), list[int]()
    while len(written) < min(count, length - 1):
        scores = model(new, cache=cache)[0, -1]
        scores[[tokenizer.pad, tokenizer.end]] = -torch.inf
        written.append(int(scores.argmax()))
        new = torch.tensor([[written[-1]]], device=device)
    model.train(was)
    return tokenizer.decode(written)
