"""How answers of `qkv generate` look on standard output."""

import sys
from typing import TYPE_CHECKING, Any

import typer

from qkv.cli.progress import say

if TYPE_CHECKING:
    from qkv.engine.generate import Generating, Generation, Prompt
    from qkv.text import Tokenizer


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
        self.tokenizer, self.json, self.logprobs, self.several = tokenizer, json, logprobs, several
        self.seed, self.begun = seed, False

    def follow(self, prompt: "Prompt", writing: "Generating") -> None:
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

    def answer(self, prompt: "Prompt", generation: "Generation") -> None:
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
        said = prompt if isinstance(prompt, str) else prompt[-1]["content"]
        beside = {"prompt": said} if self.several else {}
        typer.echo(dumps(beside | fields, ensure_ascii=False))
        sys.stdout.flush()

    def _begin(self) -> None:
        if self.begun and not self.json:
            typer.echo("")
        if not self.begun and self.seed is not None:
            say(f"seed {self.seed}")
        self.begun = True


def _fields(generation: "Generation") -> dict[str, Any]:
    names = ("text", "tokens", "logprobs", "stop_reason")
    return {name: getattr(generation, name) for name in names}
