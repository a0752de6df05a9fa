"""Text generation with decoders: Request → Sequence → Completion.

One completion as a stream (`generate`), many prompts as a batch (`generate_many`,
`generate_each`), or many callers at once (`Service`).
"""

from qkv.engine.generate.chat import Chat, Turn
from qkv.engine.generate.decode import (
    ScoredPrompt,
    SessionCache,
    decode_one,
    last_token_logits,
    score_prompts,
    token_logits,
)
from qkv.engine.generate.generation import (
    CompletionResult,
    CompletionStream,
    generate,
    generate_each,
    generate_many,
)
from qkv.engine.generate.prefill import Prefill, PrefixCache
from qkv.engine.generate.request import (
    DEFAULT_MAX_TOKENS,
    Options,
    Request,
    Truncate,
    choose_sampling,
    context_length,
    expect_language_model,
    make_request,
    with_penalties,
)
from qkv.engine.generate.sampling import (
    DEFAULT_SAMPLING,
    GREEDY,
    FrequencyPenalty,
    Greedy,
    LogitBias,
    LogitsProcessor,
    MinP,
    Multinomial,
    RepetitionPenalty,
    SampledToken,
    Sampler,
    Sampling,
    SuppressTokens,
    Temperature,
    TopK,
    TopP,
)
from qkv.engine.generate.scheduler import Event, Scheduler
from qkv.engine.generate.sequence import Completion, Sequence, StopReason, Token
from qkv.engine.generate.service import CompletionFuture, Service
from qkv.engine.generate.speculative import Acceptance, Drafter, DraftModel, NGram
from qkv.engine.generate.streaming import Detokenizer, space_before
from qkv.text import Prompt, encode_prompt

__all__ = [
    "DEFAULT_MAX_TOKENS",
    "DEFAULT_SAMPLING",
    "GREEDY",
    "Acceptance",
    "Chat",
    "Completion",
    "CompletionFuture",
    "CompletionResult",
    "CompletionStream",
    "Detokenizer",
    "DraftModel",
    "Drafter",
    "Event",
    "FrequencyPenalty",
    "Greedy",
    "LogitBias",
    "LogitsProcessor",
    "MinP",
    "Multinomial",
    "NGram",
    "Options",
    "Prefill",
    "PrefixCache",
    "Prompt",
    "RepetitionPenalty",
    "Request",
    "SampledToken",
    "Sampler",
    "Sampling",
    "Scheduler",
    "ScoredPrompt",
    "Sequence",
    "Service",
    "SessionCache",
    "StopReason",
    "SuppressTokens",
    "Temperature",
    "Token",
    "TopK",
    "TopP",
    "Truncate",
    "Turn",
    "choose_sampling",
    "context_length",
    "decode_one",
    "encode_prompt",
    "expect_language_model",
    "generate",
    "generate_each",
    "generate_many",
    "last_token_logits",
    "make_request",
    "score_prompts",
    "space_before",
    "token_logits",
    "with_penalties",
]
