"""All public checkpoint formats; the table in the documentation is generated from this list."""

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

from qkv.checkpoints.albert import Albert
from qkv.checkpoints.bart import Bart
from qkv.checkpoints.bert import Bert
from qkv.checkpoints.distilbert import DistilBert
from qkv.checkpoints.format import CheckpointFormat
from qkv.checkpoints.gemma import Gemma
from qkv.checkpoints.gpt2 import Gpt2
from qkv.checkpoints.gpt_neox import GptNeoX
from qkv.checkpoints.llama import Llama
from qkv.checkpoints.marian import Marian
from qkv.checkpoints.modernbert import ModernBert
from qkv.checkpoints.pegasus import Pegasus
from qkv.checkpoints.roberta import Roberta
from qkv.checkpoints.t5 import T5
from qkv.checkpoints.t5gemma import T5Gemma
from qkv.errors import BundleError

FORMATS: tuple[CheckpointFormat, ...] = (
    Bert(),
    Roberta(),
    DistilBert(),
    Albert(),
    ModernBert(),
    Llama(),
    Gemma(),
    Gpt2(),
    GptNeoX(),
    T5(),
    Bart(),
    Marian(),
    Pegasus(),
    T5Gemma(),
)


def find_format(fields: Mapping[str, Any], location: str) -> CheckpointFormat:
    """The format for the `model_type` of a config.json."""
    model_type = fields.get("model_type")
    if not isinstance(model_type, str):
        raise BundleError(f"{location} has no model_type, so its checkpoint format is unknown")
    supported: list[str] = []
    for fmt in FORMATS:
        if model_type in fmt.model_types:
            return fmt
        supported.extend(fmt.model_types)
    matches = get_close_matches(model_type, supported, n=1, cutoff=0.8)
    hint = f'; did you mean "{matches[0]}"?' if matches else "."
    raise BundleError(
        f'{location}: model_type "{model_type}" is not supported{hint} Supported are: '
        f"{', '.join(supported)}"
    )
