"""Text from a decoder-only model: one answer token by token, many at once, or for many callers."""

from qkv.engine.generate.batch import Batch
from qkv.engine.generate.drafts import Draft, DraftModel, NGram, Tally
from qkv.engine.generate.generate import Generating, generate
from qkv.engine.generate.handle import Handle
from qkv.engine.generate.many import Answered, generate_each, generate_many
from qkv.engine.generate.prompting import Options, Prompt, Prompter
from qkv.engine.generate.request import Request
from qkv.engine.generate.running import Event, Running
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
from qkv.engine.generate.service import Service
from qkv.engine.generate.streaming import TextStream
from qkv.engine.generate.writing import Generation, StopReason, Token

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
