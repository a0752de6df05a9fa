"""`qkv generate`: a model writes on."""

import sys
from collections.abc import Iterator, Sequence
from itertools import chain, islice
from typing import TYPE_CHECKING, Annotated, Any

import typer

from qkv.cli.flags import flags_of, spell_flags
from qkv.cli.options import (
    Compile,
    File,
    Int8,
    Json,
    ModelPath,
    Texts,
    Threads,
    complete_from,
    load_engine,
    read_texts,
)
from qkv.cli.progress import print_stderr
from qkv.errors import QkvError, UsageError

if TYPE_CHECKING:
    from qkv.engine.generate import Completion, CompletionStream, Prompt
    from qkv.text import Tokenizer

if TYPE_CHECKING:
    from qkv.engine.engine import Engine
    from qkv.engine.generate import CompletionResult, Drafter, Prompt

# FOLDED cli/generated: How answers of `qkv generate` look on standard output.


class Shown:
    """How answers look on standard output."""

    def __init__(
        self,
        tokenizer: "Tokenizer",
        json: bool,
        logprobs: bool,
        several: bool,
        seed: int | None,
    ) -> None:
        """seed: one that nobody gave, which is told when there is an answer."""
        self.tokenizer = tokenizer
        self.json = json
        self.logprobs = logprobs
        self.several = several
        self.seed = seed
        self.begun = False

    def follow(self, prompt: "Prompt", writing: "CompletionStream") -> None:
        """Text as it is written; anything else when it is finished."""
        if self.json or self.logprobs:
            self.answer(prompt, writing.finish())
            return
        self._begin()
        for token in writing:
            if token.text:
                sys.stdout.write(token.text)
                sys.stdout.flush()
        typer.echo("")

    def answer(self, prompt: "Prompt", generation: "Completion") -> None:
        if self.json:
            self.object(prompt, _fields(generation))
            return
        self._begin()
        if self.logprobs:
            for id, logprob in zip(generation.tokens, generation.logprobs, strict=True):
                typer.echo(f"{logprob:9.4f}  {self.tokenizer.token(id)}")
        else:
            typer.echo(generation.text)
        sys.stdout.flush()

    def object(self, prompt: "Prompt", fields: dict[str, Any]) -> None:
        from json import dumps

        self._begin()
        if isinstance(prompt, str):
            said = prompt
        else:
            said = prompt[-1]["content"]
        beside = {"prompt": said} if self.several else {}
        typer.echo(dumps(beside | fields, ensure_ascii=False))
        sys.stdout.flush()

    def _begin(self) -> None:
        if self.begun and not self.json:
            typer.echo("")
        if not self.begun and self.seed is not None:
            print_stderr(f"seed {self.seed}")
        self.begun = True


def _fields(generation: "Completion") -> dict[str, Any]:
    names = ("text", "tokens", "logprobs", "stop_reason")
    return {name: getattr(generation, name) for name in names}


def generate(
    model: ModelPath,
    texts: Texts = None,
    file: File = None,
    max_tokens: Annotated[
        int | None, typer.Option(min=1, show_default="200", help="The most tokens to write.")
    ] = None,
    temperature: Annotated[
        float, typer.Option(help="0 takes the likeliest token; above 1 is wilder.")
    ] = 0.8,
    top_k: Annotated[int | None, typer.Option(help="Draw from the K likeliest tokens.")] = None,
    top_p: Annotated[
        float, typer.Option(help="Draw from the likeliest tokens with this probability in all.")
    ] = 0.95,
    min_p: Annotated[
        float | None, typer.Option(help="Draw from tokens this likely beside the likeliest.")
    ] = None,
    repetition_penalty: Annotated[
        float | None, typer.Option(help="Above 1: tokens that were there become unlikelier.")
    ] = None,
    stop: Annotated[
        list[str] | None, typer.Option(help="End before this text; may be given again.")
    ] = None,
    seed: Annotated[
        int | None, typer.Option(min=0, show_default="random", help="Same seed, same text.")
    ] = None,
    n: Annotated[int, typer.Option("--n", min=1, help="How many answers to each prompt.")] = 1,
    logprobs: Annotated[
        bool, typer.Option("--logprobs", help="Each token on a line with its log-probability.")
    ] = False,
    chat: Annotated[
        bool, typer.Option("--chat", help="A prompt is a user's message to a chat model.")
    ] = False,
    system: Annotated[str | None, typer.Option(help="With --chat: what the model is told.")] = None,
    truncate: Annotated[
        str | None,
        typer.Option(
            help="left: forget the beginning of a prompt that is too long.",
            autocompletion=complete_from(["left"]),
        ),
    ] = None,
    draft: Annotated[
        str | None, typer.Option(help="A smaller model's directory, or ngram: guesses ahead.")
    ] = None,
    json: Json = False,
    int8: Int8 = False,
    compile_: Compile = False,
    threads: Threads = None,
) -> None:
    """Let a language model write on from a prompt.

    The text appears as it is written. Several prompts (arguments, lines of a file or of standard
    input) are answered side by side and shown in their order, with an empty line between them.
    An empty prompt starts from nothing.

    \b
    Examples:
      qkv generate runs/book "Once upon a time"
      qkv generate runs/book "Once upon" --temperature 0 --max-tokens 50 --stop "."
      qkv generate runs/book --file prompts.txt --json --seed 7
      qkv generate models/chat "Who are you?" --chat --system "Answer in one sentence."
      qkv generate runs/large "Once upon a time" --draft runs/small
    """
    from secrets import randbits

    from qkv.engine.generate import Sampling

    if system is not None and not chat:
        raise UsageError("--system tells a chat model what to do; give --chat too")
    sampling = Sampling.of(temperature, top_k, top_p, min_p, repetition_penalty)
    asked = (_prompt(text, chat, system) for text in read_texts(texts, file))
    engine = load_engine(model, int8, threads, compile_)
    chosen = None
    if seed is None and temperature != 0:
        seed = chosen = randbits(32)
    options = {
        "max_tokens": max_tokens, "sampling": sampling, "seed": seed, "stop": tuple(stop or ()),
        "truncate": truncate,
    }  # fmt: skip
    first = list(islice(asked, 2))
    several = len(first) > 1 or file is not None
    shown = Shown(engine.tokenizer, json, logprobs, several, chosen)
    prompts = chain(first, asked)
    if draft is not None:
        _one_by_one(engine, prompts, n, options | {"draft": _draft(draft, engine)}, shown)
    elif len(first) == 1 and n == 1:
        _one_by_one(engine, prompts, n, options, shown)
    else:
        _many(engine, prompts, n, options, shown)


def _one_by_one(
    engine: "Engine", prompts: Iterator["Prompt"], n: int, options: dict[str, Any], shown: Shown
) -> None:
    """One answer after the other, and in the end how good the guesses of a draft were."""
    from qkv.engine.generate import Acceptance, CompletionResult

    total = Acceptance()
    failed = False
    for place, prompt in enumerate(prompts):
        for number in range(n):
            try:
                writing = engine.generate(prompt, sample_index=number, **options)
                shown.follow(prompt, writing)
            except QkvError as error:
                failed = not _told(CompletionResult(place, number, prompt, None, error), shown)
                break
            total.drafted += writing.acceptance.drafted
            total.accepted += writing.acceptance.accepted
    if options.get("draft") is not None:
        print_stderr(
            f"draft: {total.accepted:,} of {total.drafted:,} guesses were right, {total.rate:.0%}"
        )
    if failed:
        raise typer.Exit(2)


def _many(
    engine: "Engine", prompts: Iterator["Prompt"], n: int, options: dict[str, Any], shown: Shown
) -> None:
    """Answers in the order of their prompts; one that fails is told, and the others go on."""
    from qkv.engine.generate import generate_each
    from qkv.model import Decoder

    held: dict[tuple[int, int], CompletionResult] = {}
    turn = (0, 0)
    failed = 0
    model = engine.require(Decoder)
    for answered in generate_each(model, engine.tokenizer, prompts, n=n, **options):
        held[answered.prompt_index, answered.sample_index] = answered
        while turn in held:
            failed += not _told(held.pop(turn), shown)
            if turn[1] + 1 < n:
                turn = (turn[0], turn[1] + 1)
            else:
                turn = (turn[0] + 1, 0)
    if failed:
        raise typer.Exit(2)


def _told(answered: "CompletionResult", shown: Shown) -> bool:
    """Whether there was an answer to show."""
    if answered.completion is not None:
        shown.answer(answered.prompt, answered.completion)
        return True
    assert answered.error is not None
    if not isinstance(answered.error, QkvError) or not shown.several:
        raise answered.error
    message = spell_flags(" ".join(str(answered.error).split()), flags_of(generate))
    if answered.sample_index == 0:
        print_stderr(f"qkv: prompt {answered.prompt_index + 1}: {message}")
    if shown.json:
        shown.object(answered.prompt, {"error": message})
    return False


def _draft(name: str, engine: "Engine") -> "Drafter":
    from difflib import get_close_matches
    from pathlib import Path

    from qkv.engine.engine import Engine
    from qkv.engine.generate import DraftModel, NGram
    from qkv.model import Decoder

    if name == "ngram":
        return NGram()
    if not Path(name).exists() and get_close_matches(name, ["ngram"]):
        raise UsageError(f'unknown draft "{name}"; did you mean "ngram"?')
    small = Engine.load(name, compile=engine.compile)
    ours = engine.tokenizer
    theirs = small.tokenizer
    if ours.vocab_size != theirs.vocab_size or any(
        ours.token(id) != theirs.token(id) for id in range(ours.vocab_size)
    ):
        raise UsageError(
            f"the draft {name} has other tokens ({theirs.summary}) than the model "
            f"({ours.summary}); a draft must share its tokenizer"
        )
    return DraftModel(small.require(Decoder))


def _prompt(text: str, chat: bool, system: str | None) -> "Prompt":
    if not chat:
        return text
    told: Sequence[dict[str, str]] = [{"role": "system", "content": system}] if system else []
    return [*told, {"role": "user", "content": text}]
