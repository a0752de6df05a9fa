"""`qkv generate`: complete prompts with a language model."""

from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from qkv.cli.completion_output import CompletionPrinter, CompletionWriter
from qkv.cli.flags import flags_of
from qkv.cli.options import (
    AsText,
    Compile,
    File,
    Force,
    Int8,
    Json,
    ModelPath,
    TableFile,
    TextColumn,
    Texts,
    Threads,
    check_output,
    complete_from,
    load_engine,
    mutually_exclusive,
    open_output,
    read_records,
)
from qkv.cli.progress import TextProgress, print_stderr
from qkv.errors import QkvError, UsageError

if TYPE_CHECKING:
    from qkv.data import Records
    from qkv.engine import Engine
    from qkv.engine.generate import (
        CompletionResult,
        Drafter,
        Prompt,
    )
    from qkv.text import Tokenizer

option = typer.Option

MaxTokens = Annotated[
    int | None, option(min=1, show_default="200", help="Maximum number of tokens to generate.")
]
Temperature = Annotated[float, option(help="0 is greedy; above 1 is more random.")]
TopK = Annotated[int | None, option(help="Sample from the K most probable tokens.")]
TopP = Annotated[float, option(help="Sample from the most probable tokens that sum to this.")]
MinP = Annotated[
    float | None, option(help="Sample from tokens at least this probable, relative to the first.")
]
RepetitionPenalty = Annotated[
    float | None, option(help="Above 1: tokens that already occurred become less probable.")
]
StopTexts = Annotated[list[str] | None, option(help="Stop before this text; repeatable.")]
Seed = Annotated[int | None, option(min=0, show_default="random", help="Same seed, same text.")]
Count = Annotated[int, option("--n", min=1, help="Completions per prompt.")]
Logprobs = Annotated[
    bool, option("--logprobs", help="Print each token with its log-probability on a line.")
]
Chat = Annotated[bool, option("--chat", help="Prompts are a user's messages to a chat model.")]
System = Annotated[str | None, option(help="With --chat: the system prompt.")]
Echo = Annotated[bool, option("--echo", help="Print the prompt before its completion.")]
Truncate = Annotated[
    str | None,
    option(
        help="left: drop the beginning of a prompt that is too long.",
        autocompletion=complete_from(["left"]),
    ),
]
Draft = Annotated[
    str | None,
    option(help="Speculative decoding: the directory of a smaller model, or ngram."),
]


def generate(
    model: ModelPath,
    texts: Texts = None,
    file: File = None,
    text: TextColumn = None,
    output: TableFile = None,
    max_tokens: MaxTokens = None,
    temperature: Temperature = 0.8,
    top_k: TopK = None,
    top_p: TopP = 0.95,
    min_p: MinP = None,
    repetition_penalty: RepetitionPenalty = None,
    stop: StopTexts = None,
    seed: Seed = None,
    n: Count = 1,
    logprobs: Logprobs = False,
    chat: Chat = False,
    system: System = None,
    echo: Echo = False,
    truncate: Truncate = None,
    draft: Draft = None,
    force: Force = False,
    as_text: AsText = False,
    json: Json = False,
    int8: Int8 = False,
    compile_: Compile = False,
    threads: Threads = None,
) -> None:
    """Complete a prompt with a language model.

    The text is printed as it is generated. Several prompts (arguments, lines of a file or of
    standard input) are processed in one batch and printed in their order, with an empty line
    between them. An empty prompt is allowed. Without --seed a random one is chosen and printed.
    With -o, write every row of a table, with all its columns and a completion; a row without a
    prompt has none.

    \b
    Examples:
      qkv generate runs/book "Once upon a time"
      qkv generate runs/book "Once upon" --temperature 0 --max-tokens 50 --stop "."
      qkv generate runs/book --file prompts.txt --json --seed 7
      qkv generate runs/book --file prompts.csv --text prompt -o completions.csv
      qkv generate runs/book "Once upon a time" --echo > story.txt
      qkv generate models/chat "Who are you?" --chat --system "Answer in one sentence."
      qkv generate runs/large "Once upon a time" --draft runs/small
    """
    from secrets import randbits

    from qkv.engine.generate import Sampling

    if system is not None and not chat:
        raise UsageError("--system is the system prompt of a chat; add --chat")
    mutually_exclusive({"-o": output, "--logprobs": logprobs})
    check_output(output, force, json)
    sampling = Sampling.of(temperature, top_k, top_p, min_p, repetition_penalty)
    records = read_records(texts, file, text, as_text)
    engine = load_engine(model, int8, threads, compile_)
    random_seed = None
    if seed is None and temperature != 0:
        random_seed = randbits(32)
        seed = random_seed
    options: dict[str, Any] = {
        "max_tokens": max_tokens,
        "sampling": sampling,
        "seed": seed,
        "stop": tuple(stop or ()),
        "truncate": truncate,
    }
    if draft is not None:
        options["draft"] = _load_drafter(draft, engine)

    as_prompt = partial(_prompt, chat=chat, system=system)
    if output is not None:
        _write_table(engine, records, output, as_prompt, n, options, random_seed)
        return
    prompts = map(as_prompt, records.texts())
    # Two prompts are enough to know whether there are several; the rest stays unread.
    first_prompts = list(islice(prompts, 2))
    several = len(first_prompts) > 1 or file is not None
    printer = CompletionPrinter(
        engine.tokenizer, flags_of(generate), json, logprobs, several, random_seed, echo
    )
    one_by_one = len(first_prompts) == 1 and n == 1
    if _generate(engine, chain(first_prompts, prompts), n, options, printer, one_by_one):
        raise typer.Exit(2)


def _write_table(
    engine: "Engine",
    records: "Records",
    output: Path,
    as_prompt: Callable[[str], "Prompt"],
    n: int,
    options: dict[str, Any],
    random_seed: int | None,
) -> None:
    from qkv.data import Column

    columns = [Column("completion")]
    if n > 1:
        columns = [Column(f"completion_{number}") for number in range(1, n + 1)]
    if random_seed is not None:
        print_stderr(f"seed {random_seed}")
    with open_output(output, records, columns) as table:
        prompts = (as_prompt(text) for text in table.texts() if text.strip())
        writer = CompletionWriter(table, TextProgress(records.count), flags_of(generate))
        has_errors = _generate(engine, prompts, n, options, writer, one_by_one=False)
    if has_errors:
        raise typer.Exit(2)


def _prompt(text: str, chat: bool, system: str | None) -> "Prompt":
    """The text; for a chat model as a list of messages."""
    if not chat:
        return text
    messages = [{"role": "user", "content": text}]
    if system:
        messages.insert(0, {"role": "system", "content": system})
    return messages


def _generate(
    engine: "Engine",
    prompts: Iterator["Prompt"],
    n: int,
    options: dict[str, Any],
    printer: CompletionPrinter | CompletionWriter,
    one_by_one: bool,
) -> bool:
    """Print all completions; whether there were errors. A draft works for one at a time."""
    if one_by_one or "draft" in options:
        return _generate_one_by_one(engine, prompts, n, options, printer)
    return _generate_batched(engine, prompts, n, options, printer)


def _generate_one_by_one(
    engine: "Engine",
    prompts: Iterator["Prompt"],
    n: int,
    options: dict[str, Any],
    printer: CompletionPrinter | CompletionWriter,
) -> bool:
    """Stream one completion after the other; whether there were errors.

    With a draft, its acceptance rate is printed at the end.
    """
    from qkv.engine.generate import Acceptance, CompletionResult

    total = Acceptance()
    has_errors = False
    for prompt_index, prompt in enumerate(prompts):
        for sample_index in range(n):
            try:
                completion = engine.generate(prompt, sample_index=sample_index, **options)
                printer.stream(prompt, completion)
            except QkvError as error:
                printer.fail(CompletionResult(prompt_index, sample_index, prompt, None, error))
                has_errors = True
                break
            total.drafted += completion.acceptance.drafted
            total.accepted += completion.acceptance.accepted
        printer.end_prompt()
    if options.get("draft") is not None:
        print_stderr(
            f"draft: {total.accepted:,} of {total.drafted:,} tokens accepted, {total.rate:.0%}"
        )
    return has_errors


def _generate_batched(
    engine: "Engine",
    prompts: Iterator["Prompt"],
    n: int,
    options: dict[str, Any],
    printer: CompletionPrinter | CompletionWriter,
) -> bool:
    """Print completions in the order of their prompts; whether there were errors.

    A prompt that fails does not stop the others.
    """
    from qkv.engine.generate import generate_each
    from qkv.model import Decoder

    # Completions finish in any order: each waits here until those before it are printed.
    waiting: dict[tuple[int, int], CompletionResult] = {}
    next_key = (0, 0)
    has_errors = False
    model = engine.require(Decoder)
    for result in generate_each(model, engine.tokenizer, prompts, n=n, **options):
        waiting[result.prompt_index, result.sample_index] = result
        while next_key in waiting:
            next_result = waiting.pop(next_key)
            if next_result.completion is None:
                if not isinstance(next_result.error, QkvError):
                    assert next_result.error is not None
                    raise next_result.error  # a bug
                printer.fail(next_result)
                has_errors = True
            else:
                printer.print(next_result.prompt, next_result.completion)
            prompt_index, sample_index = next_key
            next_key = (prompt_index, sample_index + 1)
            if sample_index + 1 == n:
                next_key = (prompt_index + 1, 0)
                printer.end_prompt()
    return has_errors


def _load_drafter(name: str, engine: "Engine") -> "Drafter":
    """The drafter that --draft names: n-grams of the text itself, or a smaller model."""
    from difflib import get_close_matches
    from pathlib import Path

    from qkv.engine import Engine
    from qkv.engine.generate import DraftModel, NGram
    from qkv.model import Decoder

    if name == "ngram":
        return NGram()
    if not Path(name).exists() and get_close_matches(name, ["ngram"]):
        raise UsageError(f'unknown draft "{name}"; did you mean "ngram"?')
    draft = Engine.load(name, compile=engine.compile)
    if not _same_vocabulary(draft.tokenizer, engine.tokenizer):
        raise UsageError(
            f"the draft {name} has other tokens ({draft.tokenizer.summary}) than the model "
            f"({engine.tokenizer.summary}); a draft must share its tokenizer"
        )
    return DraftModel(draft.require(Decoder))


def _same_vocabulary(a: "Tokenizer", b: "Tokenizer") -> bool:
    if a.vocab_size != b.vocab_size:
        return False
    return all(a.token(id) == b.token(id) for id in range(a.vocab_size))
