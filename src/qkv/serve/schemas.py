"""The bodies of requests, as pydantic models: validation, and the OpenAPI schema.

An unknown field is an error with a suggestion, never ignored. Fields of OpenAI's API that cannot
change an answer here are accepted; those that would, and are not supported, must be left out.
"""

from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Discriminator, Field, Tag
from pydantic_core import PydanticCustomError

MAX_TEXT = 1_000_000  # characters
MAX_TEXTS = 2048
MAX_IDS = 131_072
MAX_SEED = (1 << 63) - 1


def _whole_number(value: object) -> object:
    """JSON does not tell 5.0 from 5."""
    if isinstance(value, float) and value.is_integer() and abs(value) < 1 << 63:
        return int(value)
    return value


Int = Annotated[int, BeforeValidator(_whole_number)]
Text = Annotated[str, Field(max_length=MAX_TEXT)]
TokenId = Annotated[Int, Field(ge=0, lt=1 << 31)]
TokenIds = Annotated[list[TokenId], Field(min_length=1, max_length=MAX_IDS)]
TokenIdLists = Annotated[list[TokenIds], Field(min_length=1, max_length=MAX_TEXTS)]
Texts = Annotated[list[Text], Field(min_length=1, max_length=MAX_TEXTS)]


def _refuse(value: object) -> None:
    """A field of another API that would change the answer; its empty values would not."""
    if value:
        raise PydanticCustomError(
            "unsupported", "this server does not support it, so leave the field out"
        )


def refuse_media(value: object) -> object:
    if isinstance(value, str) and not value.endswith("text"):
        raise PydanticCustomError(
            "unsupported",
            "this server reads text, so it does not support content of type {type}",
            {"type": value[:50]},
        )
    return value


def _content_kind(value: object) -> str:
    """Which of its two forms a content has, so that an error is about that form only."""
    return "str" if isinstance(value, str) else "list"


Part = TypeVar("Part")

Unsupported = Annotated[None, BeforeValidator(_refuse)]
TextType = Annotated[Literal["text"], BeforeValidator(refuse_media)]
Content = Annotated[
    Annotated[Text, Tag("str")] | Annotated[list[Part], Field(max_length=MAX_TEXTS), Tag("list")],
    Discriminator(_content_kind),
]
ModelName = Annotated[str, Field(min_length=1, max_length=200, examples=["stories"])]


class Body(BaseModel):
    """Strict: no coercion, no unknown fields."""

    model_config = ConfigDict(extra="forbid", strict=True)


class Edit(Body):
    """A change to make inside the model."""

    kind: Literal["ablate_head", "no_mask", "no_scale", "no_position", "replace_token"]
    layer: Int = Field(0, ge=0, le=1000)
    head: Int = Field(0, ge=0, le=1000)
    cross: bool = False
    side: Literal["encoder", "decoder"] | None = None
    position: Int = Field(0, ge=-MAX_IDS, le=MAX_IDS)
    token: str = Field("", max_length=200)


class ExplainOptions(Body):
    """How an answer is to be explained.

    stream: of the tokens of a completion, what each layer would have said (`lens`), where the
    token looked (`attention`), what else it might have been (`alternatives`).
    """

    method: Literal["occlusion", "stream"] | None = None
    stream: list[Literal["alternatives", "lens", "attention"]] = Field(default=[], max_length=3)
    top: Int = Field(5, ge=1, le=20)
    budget_ms: Annotated[float, Field(gt=0, le=600_000)] | None = None


Explain = bool | ExplainOptions


class StreamOptions(Body):
    include_usage: bool = False


class JsonSchema(Body):
    name: str = Field("answer", max_length=200)
    description: str | None = Field(None, max_length=10_000)
    schema_: dict[str, Any] = Field(alias="schema")
    strict: bool | None = None


class ResponseFormat(Body):
    """The form of the answer: free text, any JSON object, or JSON of a schema."""

    type: Literal["text", "json_object", "json_schema"]
    json_schema: JsonSchema | None = None


class GenerationBody(Body):
    """What all generating routes take."""

    model: ModelName
    temperature: float | None = Field(None, ge=0, le=100)
    top_p: float | None = Field(None, gt=0, le=1)
    top_k: Int | None = Field(None, ge=1, le=1 << 31)
    min_p: float | None = Field(None, ge=0, le=1)
    repetition_penalty: float | None = Field(None, gt=0, le=100)
    presence_penalty: float | None = Field(None, ge=-2, le=2)
    frequency_penalty: float | None = Field(None, ge=-2, le=2)
    logit_bias: dict[str, Annotated[float, Field(ge=-100, le=100)]] | None = Field(
        None, max_length=1024
    )
    n: Int | None = Field(None, ge=1, le=16)
    seed: Int | None = Field(None, ge=-MAX_SEED, le=MAX_SEED)
    stop: Text | Annotated[list[Text], Field(max_length=16)] | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    response_format: ResponseFormat | None = None
    regex: str | None = Field(None, max_length=10_000)
    grammar: str | None = Field(None, max_length=65_536)
    truncate: Literal["left"] | None = None
    ignore_eos: bool = False
    explain: Explain = False
    user: str | None = Field(None, max_length=1000)


class CompletionBody(GenerationBody):
    """POST /v1/completions"""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"model": "stories", "prompt": "Once upon a time", "max_tokens": 16}]
        }
    )

    prompt: Text | TokenIds | Texts | TokenIdLists
    max_tokens: Int | None = Field(None, ge=0, le=MAX_IDS)
    logprobs: Int | None = Field(None, ge=0, le=100)
    echo: bool | None = None
    best_of: Int | None = Field(None, ge=1, le=16)
    suffix: None = None


class TextPart(Body):
    type: Literal["text", "input_text", "output_text"]
    text: Text


class ChatMessage(Body):
    role: Literal["system", "developer", "user", "assistant"]
    content: Text | list[TextPart]
    name: str | None = Field(None, max_length=200)


class ChatBody(GenerationBody):
    """POST /v1/chat/completions"""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"model": "chat", "messages": [{"role": "user", "content": "Hello"}]}]
        }
    )

    messages: Annotated[list[ChatMessage], Field(min_length=1, max_length=1024)]
    max_tokens: Int | None = Field(None, ge=1, le=MAX_IDS)
    max_completion_tokens: Int | None = Field(None, ge=1, le=MAX_IDS)
    logprobs: bool | None = None
    top_logprobs: Int | None = Field(None, ge=0, le=20)
    tools: Annotated[list[Any], Field(max_length=0)] | None = None
    tool_choice: Literal["none", "auto"] | None = None
    parallel_tool_calls: bool | None = None
    store: Literal[False] | None = None
    metadata: dict[str, str] | None = None


class EmbeddingBody(Body):
    """POST /v1/embeddings"""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"model": "minilm", "input": ["a dog", "a cat"]}]}
    )

    model: ModelName
    input: Text | TokenIds | Texts | TokenIdLists
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: Int | None = Field(None, ge=1, le=65_536)
    truncate: bool = False
    explain: Explain = False
    user: str | None = Field(None, max_length=1000)


class ClassifyBody(Body):
    """POST /v1/classify"""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"model": "reviews", "input": "what a film"}]}
    )

    model: ModelName
    input: Text | Texts
    truncate: bool = False
    explain: Explain = False
    edits: list[Edit] = Field(default=[], max_length=64)


class RerankBody(Body):
    """POST /v1/rerank, in the shape of Cohere and Jina"""

    model: ModelName
    query: Text
    documents: Annotated[list[Text], Field(min_length=1, max_length=MAX_TEXTS)]
    top_n: Int | None = Field(None, ge=1, le=MAX_TEXTS)
    return_documents: bool = False
    truncate: bool = False
    explain: Explain = False


class SimilarityBody(Body):
    """POST /v1/similarity"""

    model: ModelName
    a: Text
    b: Text
    explain: Explain = False


class ClusterBody(Body):
    """POST /v1/cluster"""

    model: ModelName
    input: Annotated[list[Text], Field(min_length=2, max_length=MAX_TEXTS)]
    k: Int | None = Field(None, ge=2, le=MAX_TEXTS)
    method: Literal["kmeans", "hdbscan"] = "kmeans"
    seed: Int = Field(0, ge=0, le=2**31)


class TranslateBody(Body):
    """POST /translate, in the shape of LibreTranslate; as JSON or as a form"""

    q: Text | Annotated[list[Text], Field(min_length=1, max_length=256)]
    source: str = Field("auto", max_length=20)
    target: str = Field("", max_length=20)
    format: Literal["text"] | None = None
    alternatives: Int = Field(0, ge=0, le=8)
    api_key: str | None = Field(None, max_length=1000)
    model: str | None = Field(None, max_length=200)
    beams: Int = Field(4, ge=1, le=16)
    alignment: bool = False
    explain: Explain = False


class TokenizeBody(Body):
    """POST /tokenize, as vLLM has it"""

    model: ModelName | None = None
    prompt: Text | None = None
    messages: Annotated[list[ChatMessage], Field(min_length=1, max_length=1024)] | None = None
    add_special_tokens: bool = True
    return_token_strs: bool = False


class DetokenizeBody(Body):
    """POST /detokenize"""

    model: ModelName | None = None
    tokens: Annotated[list[TokenId], Field(max_length=MAX_IDS)]


class ExplainBody(Body):
    """POST /v1/explain: what `qkv explain --json` prints"""

    model: ModelName
    input: Text
    method: Literal["attribution", "walk", "what_if"] = "attribution"
    label: str | None = Field(None, max_length=1000)
    token: Annotated[str, Field(max_length=200)] | TokenId | None = None
    against: Annotated[str, Field(max_length=200)] | TokenId | None = None
    target: Text | None = None
    layer: Int = Field(0, ge=0, le=1000)
    head: Int = Field(0, ge=0, le=1000)
    cross: bool = False
    side: Literal["encoder", "decoder"] | None = None
    edits: list[Edit] = Field(default=[], max_length=64)
    budget_ms: Annotated[float, Field(gt=0, le=600_000)] | None = None


class TraceBody(Body):
    """POST /v1/trace: named tensors of one forward pass"""

    model: ModelName
    input: Text
    names: list[Annotated[str, Field(min_length=1, max_length=200)]] = Field(
        default=[], max_length=256
    )
    target: Text | None = None
    edits: list[Edit] = Field(default=[], max_length=64)
    budget_ms: Annotated[float, Field(gt=0, le=600_000)] | None = None


class LoadBody(Body):
    """POST /admin/models: load a model from a directory of the server"""

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")
    path: str = Field(min_length=1, max_length=4096)
