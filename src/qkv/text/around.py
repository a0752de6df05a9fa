"""What a tokenizer's own template puts around one text, such as [CLS] … [SEP]."""

from tokenizers import Tokenizer as Backend
from tokenizers import models

from qkv.errors import DataError

TEXT = 2**32 - 1  # no token has this number


def around(backend: Backend) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The ids before and after a text.

    The template is given a text of one token that cannot be its own, so it does not matter
    what the vocabulary makes of any text, or of none.
    """
    template = backend.post_processor
    if template is None:
        return (), ()
    text = Backend(models.WordLevel({"text": TEXT}, unk_token="text")).encode("text")
    ids = template.process(text, None, True).ids
    if ids.count(TEXT) != 1:
        raise DataError(f"its template holds the text {ids.count(TEXT)} times instead of once")
    place = ids.index(TEXT)
    before, after = tuple(ids[:place]), tuple(ids[place + 1 :])
    for id in before + after:
        if backend.id_to_token(id) is None:
            raise DataError(f"its template puts token {id} around a text, which does not exist")
    return before, after
