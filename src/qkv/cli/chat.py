"""`qkv chat`: a conversation with a language model, in a terminal or from standard input."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from qkv.cli.generate import (
    MaxTokens,
    MinP,
    RepetitionPenalty,
    Seed,
    StopTexts,
    Temperature,
    TopK,
    TopP,
)
from qkv.cli.options import Compile, Int8, ModelPath, Threads, load_engine
from qkv.cli.progress import print_stderr
from qkv.errors import QkvError, UsageError, unknown

if TYPE_CHECKING:
    from qkv.engine.generate import Chat

PROMPT = "> "
MAX_EXPLAINED_WORDS = 40  # of an answer

System = Annotated[str | None, typer.Option(help="The system prompt; /system changes it.")]


def chat(
    model: ModelPath,
    system: System = None,
    max_tokens: MaxTokens = None,
    temperature: Temperature = 0.8,
    top_k: TopK = None,
    top_p: TopP = 0.95,
    min_p: MinP = None,
    repetition_penalty: RepetitionPenalty = None,
    stop: StopTexts = None,
    seed: Seed = None,
    int8: Int8 = False,
    compile_: Compile = False,
    threads: Threads = None,
) -> None:
    """Talk with a language model.

    Each line is a message; the answer is printed as it is generated. A model without a chat
    template continues the text. Ctrl-C stops an answer; Ctrl-D or /quit leaves. When the
    conversation no longer fits into the context, its oldest turns are dropped, with a message.

    Commands: /why, /undo, /reset, /system TEXT, /save FILE, /help, /quit.

    \b
    Examples:
      qkv chat models/chat
      qkv chat models/chat --system "Answer in one sentence." --temperature 0
      qkv chat runs/book < messages.txt
    """
    from secrets import randbits

    from qkv.engine.generate import Sampling

    sampling = Sampling.of(temperature, top_k, top_p, min_p, repetition_penalty)
    engine = load_engine(model, int8, threads, compile_)
    if seed is None and temperature != 0:
        seed = randbits(32)
        print_stderr(f"seed {seed}")
    conversation = engine.chat(
        system, max_tokens=max_tokens, sampling=sampling, seed=seed, stop=tuple(stop or ())
    )
    if not conversation.has_template:
        print_stderr(
            "note: this model has no chat template; it continues the text (an empty line goes on)"
        )
    if sys.stdin.isatty():
        print_stderr("/help lists the commands; Ctrl-C stops an answer, Ctrl-D leaves")
    ChatLoop(conversation).run(_read_lines())


class ChatLoop:
    """Answers messages and carries out commands until one of them ends it."""

    def __init__(self, chat: "Chat") -> None:
        self.chat = chat
        self.commands: dict[str, Callable[[str], None]] = {
            "/why": self.why,
            "/undo": self.undo,
            "/reset": self.reset,
            "/system": self.system,
            "/save": self.save,
            "/help": self.help,
            "/quit": self.quit,
        }
        self.is_running = True

    def run(self, lines: Iterator[str]) -> None:
        """An error ends the turn it belongs to, not the conversation."""
        for line in lines:
            try:
                self._handle(line)
            except QkvError as error:
                print_stderr(f"qkv: {' '.join(str(error).split())}")
            if not self.is_running:
                return

    def _handle(self, line: str) -> None:
        if line.startswith("//"):  # a message that begins with a slash
            self.answer(line[1:])
        elif line.startswith("/"):
            name, _, argument = line.strip().partition(" ")
            if name not in self.commands:
                message = unknown("command", name, self.commands)
                raise UsageError(f"{message} (a message that begins with / is written //)")
            self.commands[name](argument.strip())
        elif line.strip() or not self.chat.has_template:
            self.answer(line)

    def answer(self, message: str) -> None:
        """Print the answer as it is generated; Ctrl-C keeps what there is of it."""
        dropped = self.chat.dropped
        turns = len(self.chat.turns)
        tokens = self.chat.ask(message)
        if self.chat.dropped > dropped:
            self._warn_dropped(self.chat.dropped - dropped)
        try:
            for token in tokens:
                sys.stdout.write(token.text)
                sys.stdout.flush()
        except KeyboardInterrupt:
            tokens.close()
            typer.echo("")
            print_stderr("stopped")
            return
        typer.echo("")
        if len(self.chat.turns) > turns and self.chat.turns[-1].stop_reason == "length":
            count = len(self.chat.turns[-1].answer_ids)
            print_stderr(f"note: cut off after {count} tokens (--max-tokens, or the context)")

    def _warn_dropped(self, count: int) -> None:
        turns = "turn was" if count == 1 else f"{count} turns were"
        print_stderr(
            f"note: the conversation exceeds the model's context; its oldest {turns} dropped"
        )

    def why(self, argument: str) -> None:
        """Which words the last answer comes from."""
        from shutil import get_terminal_size

        from qkv.interpret.attribution import attribution_lines, why_answer

        if not self.chat.turns:
            raise UsageError("there is no answer to explain yet")
        turn = self.chat.turns[-1]
        attribution = why_answer(
            self.chat.model, self.chat.tokenizer, turn.prompt_ids, turn.answer_ids
        )
        width = get_terminal_size((80, 24)).columns
        typer.echo("\n".join(attribution_lines(attribution, width, MAX_EXPLAINED_WORDS)))

    def undo(self, argument: str) -> None:
        """Take the last message and its answer back."""
        from qkv.cli.options import shorten

        turn = self.chat.undo()
        if turn is None:
            raise UsageError("there is nothing to undo")
        print_stderr(f"undone: {shorten(turn.message)}")

    def reset(self, argument: str) -> None:
        """Forget the conversation; the system prompt stays."""
        self.chat.reset()
        print_stderr("the conversation starts again")

    def system(self, argument: str) -> None:
        """Set the system prompt; without a text, show it."""
        if argument:
            self.chat.system = argument
        print_stderr(f"system: {self.chat.system or 'none'}")

    def save(self, argument: str) -> None:
        """Write the conversation to a file: messages as .json, or plain text."""
        from json import dumps

        from qkv.files import atomic_write, write_error_message

        if not argument:
            raise UsageError("name a file, as in /save chat.json")
        path = Path(argument)
        content = f"{self.chat.text()}\n"
        if path.suffix.lower() == ".json":
            content = dumps(self.chat.messages(), ensure_ascii=False, indent=1) + "\n"
        try:
            atomic_write(path, content.encode())
        except OSError as error:
            raise UsageError(write_error_message(path, error)) from error
        print_stderr(f"wrote {path}")

    def help(self, argument: str) -> None:
        """List the commands."""
        for name, command in self.commands.items():
            print_stderr(f"{name:<8} {command.__doc__}")

    def quit(self, argument: str) -> None:
        """Leave, as the end of the input does."""
        self.is_running = False


def _read_lines() -> Iterator[str]:
    """Lines of a terminal with a prompt and editing, or of standard input as they come."""
    from qkv.data import decode_lines, strip_newline

    if not sys.stdin.isatty():
        for line in decode_lines(sys.stdin.buffer, "standard input"):
            yield strip_newline(line)
        return
    from contextlib import suppress

    with suppress(ImportError):  # not on Windows
        import readline  # noqa: F401  gives input() editing and history

    while True:
        try:
            line = input(PROMPT)
        except EOFError:
            typer.echo("")
            return
        except KeyboardInterrupt:
            typer.echo("")
            print_stderr("Ctrl-D or /quit leaves")
            continue
        yield line
