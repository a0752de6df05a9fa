"""Every public layout there is; the list in the docs is made of this one."""

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

from qkv.checkpoints.albert import Albert
from qkv.checkpoints.bart import Bart
from qkv.checkpoints.bert import Bert
from qkv.checkpoints.distilbert import DistilBert
from qkv.checkpoints.format import Layout
from qkv.checkpoints.gemma import Gemma
from qkv.checkpoints.gpt2 import Gpt2
from qkv.checkpoints.gpt_neox import GptNeoX
from qkv.checkpoints.llama import Llama
from qkv.checkpoints.marian import Marian
from qkv.checkpoints.modernbert import ModernBert
from qkv.checkpoints.roberta import Roberta
from qkv.checkpoints.t5 import T5
from qkv.errors import BundleError

LAYOUTS: tuple[Layout, ...] = (
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
)


def find_layout(fields: Mapping[str, Any], place: str) -> Layout:
    """The layout that a config.json's `model_type` names."""
    kind = fields.get("model_type")
    if not isinstance(kind, str):
        raise BundleError(f"{place} names no model_type; a public checkpoint says what it is")
    for layout in LAYOUTS:
        if kind in layout.kinds:
            return layout
    known = [kind for layout in LAYOUTS for kind in layout.kinds]
    close = get_close_matches(kind, known, n=1, cutoff=0.8)
    if close:
        meant = f'; did you mean "{close[0]}"?'
    else:
        meant = "."
    raise BundleError(
        f'{place}: model_type "{kind}" cannot be opened{meant} These can: {", ".join(known)}'
    )
