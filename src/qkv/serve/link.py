"""The messages between the front and the engine process, and how they cross the socket.

A frame is the length of its message as four bytes, and the message in MessagePack. Every message
is one of the typed structures below; nothing that crosses can run code.
"""

import struct
from typing import Any

import msgspec

MAX_FRAME = 1 << 30
HEADER = struct.Struct("<I")


class Message(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """One of the messages below; the tag is the name of its class."""


# From the front to the engine


class LoadModel(Message, frozen=True):
    """Load a model under a name; answered by ModelLoaded or LoadFailed."""

    name: str
    path: str


class UnloadModel(Message, frozen=True):
    name: str


class SamplingParameters(msgspec.Struct, frozen=True, array_like=True):
    """How tokens are sampled; None is the engine's default."""

    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    logit_bias: dict[int, float] = {}
    grammar: str | None = None  # a grammar of llguidance
    ignore_eos: bool = False


class Generate(Message, frozen=True):
    """One completion of a prompt; answered token by token, in Tokens."""

    id: int
    model: str
    ids: list[int]
    max_tokens: int
    sampling: SamplingParameters
    seed: int
    sample_index: int = 0
    stop: list[str] = []
    top_logprobs: int = 0
    cache_salt: str = ""
    explain: list[str] = []  # of "lens" and "attention"
    explain_top: int = 5


class Score(Message, frozen=True):
    """The log-probabilities of a prompt's own tokens; answered by Result with `Scored`s."""

    id: int
    model: str
    ids: list[int]
    top_logprobs: int


class Encode(Message, frozen=True):
    """The output of an encoder for each text; answered by Result with an `Encoded`.

    output: "vector" or "probabilities" of labels. The ids include special tokens.
    """

    id: int
    model: str
    texts: list[list[int]]
    output: str


class Call(Message, frozen=True):
    """Anything else a model can do, by the name of a function in `calls`; answered by Result."""

    id: int
    model: str
    function: str
    arguments: dict[str, Any]
    budget_seconds: float | None = None


class Cancel(Message, frozen=True):
    """Nobody waits for this answer any more."""

    id: int


class Shutdown(Message, frozen=True):
    pass


# From the engine to the front


class ModelInfo(msgspec.Struct, frozen=True):
    """What the front has to know of a model."""

    name: str
    task: str  # "generate", "classify", "embed" or "translate"
    description: str
    parameters: int
    bytes: int
    context_length: int
    vocab_size: int
    width: int
    layers: int
    heads: int
    labels: list[str]
    sha256: str
    tokenizer: str | None  # the content of tokenizer.json; None if the front does not tokenize
    special_tokens: dict[str, Any]
    warnings: list[str]


class ModelLoaded(Message, frozen=True):
    info: ModelInfo
    seconds: float


class LoadFailed(Message, frozen=True):
    name: str
    message: str


class TokenEvent(msgspec.Struct, frozen=True, array_like=True):
    """One more token of a completion; the last one has a stop reason."""

    id: int  # of the request
    token: int
    text: str
    logprob: float
    alternatives: list[tuple[int, float]] = []
    stop_reason: str | None = None
    cached_tokens: int = 0
    explain: dict[str, Any] | None = None


class Tokens(Message, frozen=True):
    """All tokens of one decoding step."""

    events: list[TokenEvent]


class Scored(msgspec.Struct, frozen=True, array_like=True):
    """A token of a prompt with its log-probability and the alternatives to it."""

    token: int
    logprob: float
    alternatives: list[tuple[int, float]]


class Encoded(msgspec.Struct, frozen=True, array_like=True):
    """Float32 rows, little-endian, one after another."""

    rows: int
    width: int
    data: bytes


class Result(Message, frozen=True):
    """The answer to a Score, an Encode or a Call."""

    id: int
    value: Any


class Failed(Message, frozen=True):
    """A request that came to nothing. user: whether the request itself is at fault."""

    id: int
    user: bool
    message: str


class Heartbeat(Message, frozen=True):
    """The engine has finished a step; the next one may take `allowance` seconds."""

    allowance: float
    stats: dict[str, float]


ToEngine = LoadModel | UnloadModel | Generate | Score | Encode | Call | Cancel | Shutdown
ToFront = ModelLoaded | LoadFailed | Tokens | Result | Failed | Heartbeat

_encoder = msgspec.msgpack.Encoder()
to_engine_decoder = msgspec.msgpack.Decoder(ToEngine)
to_front_decoder = msgspec.msgpack.Decoder(ToFront)


def encode_frame(message: Message) -> bytes:
    """The message as a frame."""
    body = _encoder.encode(message)
    if len(body) > MAX_FRAME:
        raise ValueError(f"a message of {len(body):,} bytes is larger than a frame may be")
    return HEADER.pack(len(body)) + body


class FrameBuffer:
    """Bytes as they arrive, cut into the bodies of frames."""

    def __init__(self) -> None:
        self._bytes = bytearray()

    def feed(self, data: bytes) -> list[bytes]:
        """The bodies that are complete now."""
        self._bytes += data
        bodies = []
        start = 0
        while len(self._bytes) - start >= HEADER.size:
            (length,) = HEADER.unpack_from(self._bytes, start)
            if length > MAX_FRAME:
                raise ValueError(f"a frame of {length:,} bytes is too large")
            stop = start + HEADER.size + length
            if len(self._bytes) < stop:
                break
            bodies.append(bytes(self._bytes[start + HEADER.size : stop]))
            start = stop
        del self._bytes[:start]
        return bodies
