"""A conversation with a language model: its turns, and the keys and values of what it has read.

    chat = model.chat(system="Answer in one sentence.")
    for token in chat.ask("Who are you?"):
        print(token.text, end="", flush=True)

Each turn reads only what is new: the KV cache of the turns before stays (`SessionCache`).
"""

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Unpack

from qkv.engine.generate.decode import SessionCache
from qkv.engine.generate.generation import CompletionStream
from qkv.engine.generate.request import (
    DEFAULT_MAX_TOKENS,
    Options,
    context_length,
    expect_language_model,
    make_request,
)
from qkv.engine.generate.sequence import StopReason, Token
from qkv.engine.generate.streaming import space_before
from qkv.errors import UsageError
from qkv.model import Decoder
from qkv.text import Prompt, Tokenizer, encode_prompt


@dataclass(frozen=True)
class Turn:
    """A message and its answer, with the token ids that the model read and generated.

    stop_reason: None if the answer was interrupted.
    """

    message: str
    answer: str
    prompt_ids: tuple[int, ...]
    answer_ids: tuple[int, ...]
    stop_reason: StopReason | None


class Chat:
    """The turns of one conversation; `ask` adds one.

    A model without a chat template continues the text: messages and answers follow each other on
    lines of their own, and an empty message goes on where the answer ended.
    """

    def __init__(
        self,
        model: Decoder,
        tokenizer: Tokenizer,
        system: str | None = None,
        **options: Unpack[Options],
    ) -> None:
        """`options` are the keyword arguments of `make_request`, for every turn."""
        expect_language_model(model)
        if options.get("truncate") is not None:
            raise UsageError("a chat drops its oldest turns by itself; leave truncate out")
        self.model = model
        self.tokenizer = tokenizer
        self.system = system
        self.options = options
        self.turns: list[Turn] = []
        self.dropped = 0  # turns that the latest prompt had to leave out, all in all
        self.session = SessionCache(model)
        self._asked = 0

    @property
    def has_template(self) -> bool:
        """Whether the model was published with a chat template."""
        return self.tokenizer.special_tokens.chat_template is not None

    def ask(self, message: str) -> Generator[Token, None, None]:
        """The answer as a stream of tokens; closed early, it keeps what was generated.

        Turns that no longer fit into the context are left out, the oldest first.
        """
        max_tokens = self.options.get("max_tokens") or DEFAULT_MAX_TOKENS
        limit = context_length(self.model)
        prompt, length = self._fitting_prompt(message, limit, min(max_tokens, limit // 2))
        options = self.options | {"max_tokens": min(max_tokens, limit - length)}
        request = make_request(
            self.model, self.tokenizer, prompt, sample_index=self._asked, **options
        )
        self._asked += 1  # the same message, asked again, is sampled anew
        stream = CompletionStream(self.model, self.tokenizer, request, session=self.session)
        return self._generate(message, stream)

    def _generate(self, message: str, stream: CompletionStream) -> Generator[Token, None, None]:
        try:
            yield from stream
        finally:
            if stream.tokens:
                self.turns.append(self._turn(message, stream))

    def _turn(self, message: str, stream: CompletionStream) -> Turn:
        ids = stream.request.ids
        answer = stream.text
        if not self.has_template:  # the answer goes on with the text
            answer = space_before(self.tokenizer, ids, stream.tokens[0]) + answer
        return Turn(message, answer, ids, tuple(stream.tokens), stream.stop_reason)

    def undo(self) -> Turn | None:
        """Removes and returns the last turn; None if there is none."""
        if not self.turns:
            return None
        turn = self.turns.pop()
        self.dropped = min(self.dropped, len(self.turns))
        return turn

    def reset(self) -> None:
        """Forgets every turn; the system prompt stays."""
        self.turns = []
        self.dropped = 0

    def messages(self) -> list[dict[str, str]]:
        """The whole conversation as messages with a role and a content."""
        return self._messages(self.turns)

    def text(self) -> str:
        """The whole conversation as plain text."""
        if not self.has_template:
            return self._plain_text(self.turns)
        return "\n\n".join(f"{each['role']}: {each['content']}" for each in self.messages())

    def _fitting_prompt(self, message: str, limit: int, reserve: int) -> tuple[Prompt, int]:
        """The prompt of this message after as many of the latest turns as fit, and its length."""
        for first in range(self.dropped, len(self.turns) + 1):
            prompt = self._prompt(self.turns[first:], message)
            length = len(encode_prompt(self.tokenizer, prompt))
            if length + reserve <= limit:
                self.dropped = first
                return prompt, length
        raise UsageError(
            f"the message has {length} tokens, but the model reads at most {limit} and {reserve} "
            "of them are for the answer; shorten it"
        )

    def _prompt(self, turns: Sequence[Turn], message: str) -> Prompt:
        if self.has_template:
            return [*self._messages(turns), {"role": "user", "content": message}]
        before = self._plain_text(turns)
        return _join(before, message)

    def _messages(self, turns: Sequence[Turn]) -> list[dict[str, str]]:
        messages = []
        if self.system:
            messages.append({"role": "system", "content": self.system})
        for turn in turns:
            messages.append({"role": "user", "content": turn.message})
            messages.append({"role": "assistant", "content": turn.answer})
        return messages

    def _plain_text(self, turns: Sequence[Turn]) -> str:
        text = self.system or ""
        for turn in turns:
            text = _join(text, turn.message) + turn.answer
        return text


def _join(text: str, more: str) -> str:
    """Both on lines of their own; an empty text adds no line."""
    if not text or not more or text.endswith("\n"):
        return text + more
    return f"{text}\n{more}"
