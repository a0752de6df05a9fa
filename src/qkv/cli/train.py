"""`qkv train`: a model from your own text, in one command."""

import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from qkv.cli.exclusive import only_one
from qkv.errors import TrainingError, UsageError, unknown

if TYPE_CHECKING:
    import torch

    from qkv.train.language import Evaluated, Run
    from qkv.train.loop import Step
    from qkv.train.plan import Wish

JOBS = ("language",)


def train(
    job: Annotated[str, typer.Argument(help="What to learn: language (the next token).")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Where the model goes.")],
    data: Annotated[
        list[Path] | None, typer.Argument(help="Text files or folders; none: a built-in corpus.")
    ] = None,
    size: Annotated[str, typer.Option(help="tiny, small or medium.")] = "small",
    steps: Annotated[int | None, typer.Option(min=1, help="How many steps.")] = None,
    minutes: Annotated[
        float | None, typer.Option(min=0.01, help="About how long, measured at the start.")
    ] = None,
    tokens: Annotated[
        str, typer.Option(help="bpe, wordpiece, unigram, characters or bytes.")
    ] = "bpe",
    vocabulary: Annotated[
        int | None, typer.Option(min=6, help="The most tokens the tokenizer may have.")
    ] = None,
    context: Annotated[
        int | None, typer.Option(min=2, help="How many tokens the model sees at once.")
    ] = None,
    batch: Annotated[int | None, typer.Option(min=1, help="Windows of context a step.")] = None,
    optimiser: Annotated[str, typer.Option(help="muon or adamw.")] = "muon",
    seed: Annotated[int, typer.Option(min=0, help="Same seed, same weights.")] = 0,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with the run in --output.")
    ] = False,
    threads: Annotated[int | None, typer.Option(min=1, help="Cores to use.")] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or mps.")] = "auto",
) -> None:
    """Train a language model on your own text, or on the documentation inside Python.

    The end of the text, or a tenth of the documents, is held out to measure with. Ctrl-C saves;
    --resume goes on exactly where it stopped.

    \b
    Examples:
      qkv train language -o runs/python --minutes 1
      qkv train language book.txt -o runs/book --tokens characters --steps 2000
      qkv train language -o runs/book --resume
    """
    import torch

    from qkv.device import resolve
    from qkv.train.plan import Wish

    if job not in JOBS:
        raise UsageError(unknown("job", job, JOBS))
    if optimiser not in ("muon", "adamw"):
        raise UsageError(unknown("optimiser", optimiser, ("muon", "adamw")))
    only_one({"--steps": steps, "--minutes": minutes})
    if threads is not None:
        torch.set_num_threads(threads)
    where = resolve(device)
    if resume:
        run = _resumed(output, where)
    else:
        wish = Wish(size, steps or 1000, tokens, vocabulary, context, batch, optimiser, seed)
        run = _started(output, data or [], wish, minutes, where)
    _follow(run)


def _started(
    output: Path, data: list[Path], wish: "Wish", minutes: float | None, device: "torch.device"
) -> "Run":
    from qkv.bundle.bundle import TOKENIZER
    from qkv.train.language import CHECKPOINTS, RECIPE, Run
    from qkv.train.plan import plan_language

    if output.exists() and (not output.is_dir() or any(output.iterdir())):
        hint = "pass --resume to go on" if (output / CHECKPOINTS).is_dir() else "choose another"
        raise TrainingError(f"{output} is not empty; {hint}")
    documents = _documents([str(path) for path in data])
    recipe, tokenizer = plan_language(wish, documents, [str(path.absolute()) for path in data])
    run = Run(recipe, documents, tokenizer, output, device)
    if minutes is not None:
        _fit_to_time(run, minutes)
    recipe = run.recipe
    try:
        output.mkdir(parents=True, exist_ok=True)
        (output / RECIPE).write_text(recipe.toml(), encoding="utf-8")
    except OSError as error:
        raise TrainingError(f"cannot write {output}: {error.strerror or error}") from error
    tokenizer.save(output / TOKENIZER)
    _say(
        f"{recipe.model.parameters():,} parameters, {tokenizer.size:,} tokens in the vocabulary, "
        f"{len(run.train):,} tokens to learn from, {len(run.held_out):,} held out, "
        f"{recipe.steps:,} steps"
    )
    return run


def _resumed(output: Path, device: "torch.device") -> "Run":
    from qkv.bundle.bundle import TOKENIZER
    from qkv.bundle.manifest import MANIFEST
    from qkv.text import Tokenizer
    from qkv.train.language import RECIPE, Run
    from qkv.train.recipe import read_recipe

    if (output / MANIFEST).exists():
        raise TrainingError(f"the run in {output} is finished; there is nothing to resume")
    if not (output / RECIPE).exists():
        raise TrainingError(f"there is no run in {output} to resume; start one without --resume")
    recipe = read_recipe((output / RECIPE).read_text("utf-8"))
    documents = _documents(list(recipe.data.files))
    run = Run(recipe, documents, Tokenizer.load(output / TOKENIZER), output, device)
    run.resume(_say)
    _say(f"going on after step {run.progress.done:,} of {recipe.steps:,}")
    return run


def _documents(files: list[str]) -> list[str]:
    from qkv.data import built_in, read_texts

    return read_texts([Path(file) for file in files]) if files else built_in("language")


def _fit_to_time(run: "Run", minutes: float) -> None:
    """As many steps as fit, by a short measurement; the recipe then holds their number."""
    seconds = run.seconds_a_step()
    steps = max(10, int(minutes * 60 / seconds * 0.9))  # the rest is for evaluating
    _say(f"a step takes {1000 * seconds:.0f} ms here: {steps:,} steps in {minutes:g} minutes")
    run.fit_to(steps)


def _follow(run: "Run") -> None:
    """Take every step and say how it goes; asked to stop, finish the step and save."""
    from qkv.train.language import Evaluated

    started, before = time.perf_counter(), run.progress.done
    with Stop() as stop:
        for event in run.events():
            if isinstance(event, Evaluated):
                _say(_evaluated(event, run, time.perf_counter() - started, before))
            else:
                _tick(event, run)
            if stop.asked and run.progress.done < run.recipe.steps:
                run.save()
                _say(f"saved after step {run.progress.done:,}; to go on, add --resume")
                raise KeyboardInterrupt
        place = run.finish()
    assert run.progress.best is not None
    typer.echo(f"{place}: held-out loss {run.progress.best:.4f} nats a token")


class Stop:
    """Ctrl-C and SIGTERM ask for a stop between two steps; a second Ctrl-C stops at once."""

    SIGNALS = (signal.SIGINT, signal.SIGTERM)

    def __init__(self) -> None:
        self.asked = False

    def __enter__(self) -> "Stop":
        self.before = [signal.signal(number, self._ask) for number in self.SIGNALS]
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in zip(self.SIGNALS, self.before, strict=True):
            signal.signal(number, handler)

    def _ask(self, *_: object) -> None:
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True


def _tick(step: "Step", run: "Run") -> None:
    if not step.taken:
        _say(f"step {step.number}: loss {step.loss}, not finite; the weights were left alone")
    if sys.stderr.isatty() and step.number % 5 == 0:
        of, speed = run.recipe.steps, step.tokens / step.seconds
        line = f"step {step.number:,}/{of:,}  loss {step.loss:.3f}  {speed:,.0f} tokens/s"
        sys.stderr.write(f"\r\033[K{line}")
        sys.stderr.flush()


def _evaluated(event: "Evaluated", run: "Run", seconds: float, before: int) -> str:
    steps = run.recipe.steps
    left = seconds / max(1, event.number - before) * (steps - event.number)
    speed = run.progress.tokens / max(1e-9, run.progress.seconds)
    sample = " ".join(event.sample.split())[:60]
    return (
        f"step {event.number:,}/{steps:,}  held-out loss {event.loss:.4f}"
        f"{' (best)' if event.best else ''}  {speed:,.0f} tokens/s  {left:.0f} s left  “{sample}”"
    )


def _say(line: str) -> None:
    start = "\r\033[K" if sys.stderr.isatty() else ""
    print(f"{start}{line}", file=sys.stderr, flush=True)
