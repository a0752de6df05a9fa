"""qkv (query, key, value): the glass-box Transformer toolkit.

    import qkv

    model = qkv.load("models/all-MiniLM-L6-v2")     # a bundle or a public checkpoint
    model.embed(["a dog", "a cat"])
    for token in qkv.load("runs/book").generate("Once upon a time", max_tokens=50): ...

    for event in qkv.train("classify", "reviews.csv", output="runs/reviews"): ...

    trace = model.trace("a dog runs")               # every value of a forward pass, by name
    qkv.check(model)                                # proves the model's invariants

    out = qkv.attend(q, k, v, mask=qkv.Mask.causal())

Importing the package is cheap: torch is imported when a name below is first used.
"""

from typing import TYPE_CHECKING

from qkv.lazy import lazy_attributes
from qkv.version import __version__

if TYPE_CHECKING:
    from qkv.api import build, explain, load
    from qkv.attention import KVCache, Mask, attend, reference
    from qkv.bundle import Bundle
    from qkv.checks import check
    from qkv.engine import Engine
    from qkv.engine.generate import (
        GREEDY,
        Completion,
        CompletionStream,
        DraftModel,
        NGram,
        Sampling,
        Service,
    )
    from qkv.errors import (
        ArgumentError,
        BundleError,
        CacheError,
        ConfigError,
        DataError,
        MaskError,
        QkvError,
        ShapeError,
        TrainingError,
        UsageError,
        WorksheetError,
    )
    from qkv.interpret import GlassBox
    from qkv.interpret.trace import Trace
    from qkv.machine import set_threads
    from qkv.model import (
        GEGLU,
        GELU,
        Alibi,
        Classify,
        DecoderOnly,
        Embedding,
        EncoderDecoder,
        EncoderOnly,
        LayerNorm,
        Learned,
        LocalAttention,
        MaskedToken,
        MultiHead,
        NextToken,
        NoPosition,
        PostNorm,
        PreNorm,
        RelativeBuckets,
        ReLU,
        RMSNorm,
        Rope,
        Sinusoidal,
        Stack,
        SwiGLU,
        TextVector,
        preset,
        presets,
    )
    from qkv.text import Tokenizer
    from qkv.training import Evaluation, Finished, Recipe, Run, Step, train

_HOME = {
    "qkv.api": ("build", "explain", "load"),
    "qkv.attention": ("KVCache", "Mask", "attend", "reference"),
    "qkv.bundle": ("Bundle",),
    "qkv.checks": ("check",),
    "qkv.engine": ("Engine",),
    "qkv.engine.generate": (
        "GREEDY",
        "Completion",
        "CompletionStream",
        "DraftModel",
        "NGram",
        "Sampling",
        "Service",
    ),
    "qkv.errors": (
        "ArgumentError",
        "BundleError",
        "CacheError",
        "ConfigError",
        "DataError",
        "MaskError",
        "QkvError",
        "ShapeError",
        "TrainingError",
        "UsageError",
        "WorksheetError",
    ),
    "qkv.interpret": ("GlassBox",),
    "qkv.interpret.trace": ("Trace",),
    "qkv.machine": ("set_threads",),
    "qkv.model": (
        "GEGLU",
        "GELU",
        "Alibi",
        "Classify",
        "DecoderOnly",
        "Embedding",
        "EncoderDecoder",
        "EncoderOnly",
        "LayerNorm",
        "Learned",
        "LocalAttention",
        "MaskedToken",
        "MultiHead",
        "NextToken",
        "NoPosition",
        "PostNorm",
        "PreNorm",
        "RMSNorm",
        "ReLU",
        "RelativeBuckets",
        "Rope",
        "Sinusoidal",
        "Stack",
        "SwiGLU",
        "TextVector",
        "preset",
        "presets",
    ),
    "qkv.text": ("Tokenizer",),
    "qkv.training": ("Evaluation", "Finished", "Recipe", "Run", "Step", "train"),
}

__all__ = [
    "GEGLU",
    "GELU",
    "GREEDY",
    "Alibi",
    "ArgumentError",
    "Bundle",
    "BundleError",
    "CacheError",
    "Classify",
    "Completion",
    "CompletionStream",
    "ConfigError",
    "DataError",
    "DecoderOnly",
    "DraftModel",
    "Embedding",
    "EncoderDecoder",
    "EncoderOnly",
    "Engine",
    "Evaluation",
    "Finished",
    "GlassBox",
    "KVCache",
    "LayerNorm",
    "Learned",
    "LocalAttention",
    "Mask",
    "MaskError",
    "MaskedToken",
    "MultiHead",
    "NGram",
    "NextToken",
    "NoPosition",
    "PostNorm",
    "PreNorm",
    "QkvError",
    "RMSNorm",
    "ReLU",
    "Recipe",
    "RelativeBuckets",
    "Rope",
    "Run",
    "Sampling",
    "Service",
    "ShapeError",
    "Sinusoidal",
    "Stack",
    "Step",
    "SwiGLU",
    "TextVector",
    "Tokenizer",
    "Trace",
    "TrainingError",
    "UsageError",
    "WorksheetError",
    "__version__",
    "attend",
    "build",
    "check",
    "explain",
    "load",
    "preset",
    "presets",
    "reference",
    "set_threads",
    "train",
]


__getattr__ = lazy_attributes(__name__, _HOME)


def __dir__() -> list[str]:
    return sorted(__all__)
