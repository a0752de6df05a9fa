"""A prompt as token ids: a text to continue, or the messages of a chat."""

from collections.abc import Mapping, Sequence

from qkv.errors import UsageError
from qkv.text.special_tokens import DEFAULT_SPECIAL_TOKENS
from qkv.text.tokenizer import Tokenizer

Prompt = str | Sequence[Mapping[str, str]]


def encode_prompt(tokenizer: Tokenizer, prompt: Prompt) -> list[int]:
    """The prompt as token ids, preceded by the special tokens a text had in training."""
    if not isinstance(prompt, str):
        if not prompt:
            raise UsageError("the chat has no messages; give at least one user message")
        return tokenizer.encode(tokenizer.apply_chat_template(prompt), parse_special=True)
    ids = [*tokenizer.prefix_ids, *tokenizer.encode(prompt)]
    if ids:
        return ids
    # Our own language models have never seen a BOS token: documents follow each other separated
    # by EOS, so an empty prompt starts there, as the samples during training do.
    if tokenizer.special_tokens == DEFAULT_SPECIAL_TOKENS:
        return [tokenizer.eos_id]
    if tokenizer.special_tokens.bos is None:
        raise UsageError("the prompt is empty and this model has no BOS token; give a text")
    return [tokenizer.bos_id]
