"""Text from a decoder-only model: one answer token by token, many at once, or for many callers."""

from qkv.engine.generate.generation import (
    Answered,
    Generating,
    generate,
    generate_each,
    generate_many,
)
from qkv.engine.generate.request import Options, Prompt, Prompter, Request
from qkv.engine.generate.sampling import (
    GREEDY,
    USUAL,
    Draw,
    Greedy,
    MinP,
    RepetitionPenalty,
    Sampling,
    Step,
    Temperature,
    TopK,
    TopP,
)
from qkv.engine.generate.scheduler import Batch, Event, Running
from qkv.engine.generate.service import Handle, Service
from qkv.engine.generate.speculative import Draft, DraftModel, NGram, Tally
from qkv.engine.generate.streaming import Generation, StopReason, TextStream, Token

__all__ = [
    "GREEDY",
    "USUAL",
    "Answered",
    "Batch",
    "Draft",
    "DraftModel",
    "Draw",
    "Event",
    "Generating",
    "Generation",
    "Greedy",
    "Handle",
    "MinP",
    "NGram",
    "Options",
    "Prompt",
    "Prompter",
    "RepetitionPenalty",
    "Request",
    "Running",
    "Sampling",
    "Service",
    "Step",
    "StopReason",
    "Tally",
    "Temperature",
    "TextStream",
    "Token",
    "TopK",
    "TopP",
    "generate",
    "generate_each",
    "generate_many",
]
