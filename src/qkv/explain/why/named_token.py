"""Which token a person means: by its number, as it is shown, or as a text that is one token."""

from qkv.errors import UsageError
from qkv.text import Tokenizer


def named_token(tokenizer: Tokenizer, asked: str | int) -> int:
    """Its number in the vocabulary; refused if there is none, or several.

    As it is shown comes first: “ she” with its space and “she” without are two tokens.
    """
    if isinstance(asked, int):
        if not 0 <= asked < tokenizer.size:
            raise UsageError(f"token {asked} does not exist; there are 0 to {tokenizer.size - 1}")
        return asked
    shown = [id for id in range(tokenizer.size) if tokenizer.token(id) == asked]
    ids = tokenizer.encode(asked) if len(shown) != 1 else shown
    if len(ids) == 1:
        return ids[0]
    if not ids:
        raise UsageError("the token asked for is empty; name one")
    parts = ", ".join(f"“{tokenizer.token(id)}”" for id in ids)
    raise UsageError(f"“{asked}” is {len(ids)} tokens, {parts}; name one token")
