"""What public encoder–decoders have in common: where their embeddings and their head are stored."""

from collections.abc import Collection, Mapping

from qkv.layout.decoders import tied_head
from qkv.layout.expect import expect_translator
from qkv.layout.given import Given
from qkv.layout.names import Table
from qkv.model.family import Config

SHARED, HEAD = "shared.weight", "lm_head.weight"
SOURCE, TARGET = "encoder.embed_tokens.weight", "decoder.embed_tokens.weight"


def tied_output(given: Given, tensors: Collection[str]) -> bool:
    """Whether the head is the target's table.

    A head that is stored beside a table counts, whatever the config says: it may differ, and then
    others use it too. A head that is missing though it should not be tied is never made up.
    """
    stored = HEAD in tensors and any(table in tensors for table in (SHARED, SOURCE, TARGET))
    return given.flag("tie_word_embeddings", True) and not stored


def stored_apart(tensors: Collection[str]) -> bool:
    """Whether each side has a table in the file."""
    return SOURCE in tensors and TARGET in tensors


def ends(config: Config) -> Table:
    """The rows of the embeddings and of the head's matrix."""
    tables: Table = {"embedding.weight": SHARED}
    if expect_translator(config).source is not None:
        tables = {"embedding.weight": TARGET, "source.weight": SOURCE}
    return tables | {"output.weight": HEAD}


def ends_again(config: Config) -> Mapping[str, str]:
    """The embeddings under their second names."""
    if expect_translator(config).source is not None:
        return tied_head(config, TARGET)
    return {SOURCE: SHARED, TARGET: SHARED, **tied_head(config, SHARED)}
