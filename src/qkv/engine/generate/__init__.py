"""Text from a decoder-only model: one answer token by token, many at once, or for many callers."""

from qkv.engine.generate.generation import (
    CompletionResult,
    CompletionStream,
    generate,
    generate_each,
    generate_many,
)
from qkv.engine.generate.request import Options, Prompt, Prompter, Request
from qkv.engine.generate.sampling import (
    DEFAULT_SAMPLING,
    GREEDY,
    Greedy,
    LogitsProcessor,
    MinP,
    Multinomial,
    RepetitionPenalty,
    Sampling,
    Temperature,
    TopK,
    TopP,
)
from qkv.engine.generate.scheduler import Event, Scheduler, Sequence
from qkv.engine.generate.service import CompletionFuture, Service
from qkv.engine.generate.speculative import Acceptance, Drafter, DraftModel, NGram
from qkv.engine.generate.streaming import Completion, Detokenizer, StopReason, Token

__all__ = [
    "DEFAULT_SAMPLING",
    "GREEDY",
    "Acceptance",
    "Completion",
    "CompletionFuture",
    "CompletionResult",
    "CompletionStream",
    "Detokenizer",
    "DraftModel",
    "Drafter",
    "Event",
    "Greedy",
    "LogitsProcessor",
    "MinP",
    "Multinomial",
    "NGram",
    "Options",
    "Prompt",
    "Prompter",
    "RepetitionPenalty",
    "Request",
    "Sampling",
    "Scheduler",
    "Sequence",
    "Service",
    "StopReason",
    "Temperature",
    "Token",
    "TopK",
    "TopP",
    "generate",
    "generate_each",
    "generate_many",
]
