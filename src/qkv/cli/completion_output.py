"""Completions as text, as tokens with log-probabilities, as JSON, or as rows of a table."""

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import typer

from qkv.cli.flags import spell_flags
from qkv.cli.progress import TextProgress, print_stderr

if TYPE_CHECKING:
    from qkv.data import TableOutput
    from qkv.engine.generate import Completion, CompletionResult, CompletionStream, Prompt
    from qkv.text import Tokenizer


class CompletionPrinter:
    """Prints completions as text, as tokens with log-probabilities, or as JSON."""

    def __init__(
        self,
        tokenizer: "Tokenizer",
        flags: Mapping[str, str],
        json: bool,
        logprobs: bool,
        several: bool,
        seed: int | None,
        echo: bool = False,
    ) -> None:
        """`seed` is a random one, printed before the first completion; `echo` prints prompts.

        flags: how the command spells the arguments that errors name.
        """
        self.tokenizer = tokenizer
        self.flags = flags
        self.json = json
        self.logprobs = logprobs
        self.several = several
        self.seed = seed
        self.echo = echo
        self.is_first = True

    def stream(self, prompt: "Prompt", completion: "CompletionStream") -> None:
        """Print text as it is generated; JSON and log-probabilities when it is complete."""
        if self.json or self.logprobs:
            self.print(prompt, completion.finish())
            return
        self._print_separator()
        self._print_prompt(prompt)
        for token in completion:
            if len(completion.tokens) == 1:
                self._print_space(prompt, token.id)
            if token.text:
                sys.stdout.write(token.text)
                sys.stdout.flush()
        typer.echo("")

    def print(self, prompt: "Prompt", completion: "Completion") -> None:
        if self.json:
            names = ("text", "tokens", "logprobs", "stop_reason")
            self.print_json(prompt, {name: getattr(completion, name) for name in names})
            return
        self._print_separator()
        self._print_prompt(prompt)
        if self.logprobs:
            for id, logprob in zip(completion.tokens, completion.logprobs, strict=True):
                typer.echo(f"{logprob:9.4f}  {self.tokenizer.token(id)}")
        else:
            self._print_space(prompt, completion.tokens[0])
            typer.echo(completion.text)
        sys.stdout.flush()

    def fail(self, result: "CompletionResult") -> None:
        """Print the error of one prompt of several; raise it if it is the only one."""
        if not self.several:
            assert result.error is not None
            raise result.error
        message = _error_message(result, self.flags)
        if result.sample_index == 0:
            print_stderr(f"qkv: prompt {result.prompt_index + 1}: {message}")
        if self.json:
            self.print_json(result.prompt, {"error": message})

    def end_prompt(self) -> None:
        """All completions of a prompt are printed."""

    def print_json(self, prompt: "Prompt", fields: dict[str, Any]) -> None:
        """One JSON object; with the prompt if there are several, or with --echo."""
        from json import dumps

        self._print_separator()
        if self.several or self.echo:
            fields = {"prompt": _prompt_text(prompt), **fields}
        typer.echo(dumps(fields, ensure_ascii=False))
        sys.stdout.flush()

    def _print_prompt(self, prompt: "Prompt") -> None:
        """With --echo, the prompt; on a line of its own if it is a message, or before a table."""
        if not self.echo:
            return
        sys.stdout.write(_prompt_text(prompt))
        if self.logprobs or not isinstance(prompt, str):
            sys.stdout.write("\n")
        sys.stdout.flush()

    def _print_space(self, prompt: "Prompt", first: int) -> None:
        """With --echo, the space between a prompt and a completion that begins with this token."""
        from qkv.engine.generate import encode_prompt, space_before

        if self.echo and isinstance(prompt, str):
            ids = encode_prompt(self.tokenizer, prompt)
            sys.stdout.write(space_before(self.tokenizer, ids, first))

    def _print_separator(self) -> None:
        """An empty line between texts; before the first completion, a random seed."""
        if self.is_first:
            if self.seed is not None:
                print_stderr(f"seed {self.seed}")
        elif not self.json:
            typer.echo("")
        self.is_first = False


class CompletionWriter:
    """Writes completions to a table; a prompt that fails has none, and its error is printed."""

    def __init__(
        self, table: "TableOutput", progress: TextProgress, flags: Mapping[str, str]
    ) -> None:
        self.table = table
        self.flags = flags
        self.progress = progress
        self.completions: list[str | None] = []
        progress(0)

    def stream(self, prompt: "Prompt", completion: "CompletionStream") -> None:
        self.print(prompt, completion.finish())

    def print(self, prompt: "Prompt", completion: "Completion") -> None:
        self.completions.append(completion.text)

    def fail(self, result: "CompletionResult") -> None:
        if result.sample_index == 0:
            print_stderr(f"qkv: row {self.table.next_row}: {_error_message(result, self.flags)}")
        self.completions.append(None)

    def end_prompt(self) -> None:
        """Write the row; samples after one that failed are missing."""
        names = self.table.results
        missing = [None] * (len(names) - len(self.completions))
        self.table.add(dict(zip(names, [*self.completions, *missing], strict=True)))
        self.completions = []
        self.progress(self.table.rows)


def _prompt_text(prompt: "Prompt") -> str:
    """The prompt as the user wrote it."""
    if isinstance(prompt, str):
        return prompt
    return prompt[-1]["content"]


def _error_message(result: "CompletionResult", flags: Mapping[str, str]) -> str:
    """The error of one prompt on one line, with flags."""
    return spell_flags(" ".join(str(result.error).split()), flags)
