"""The import card: what was made of a public checkpoint, printed and saved with the model."""

from typing import Any

from pydantic import BaseModel, ConfigDict

from qkv.model import Classify, Config, EncoderOnly, ModelConfig, Output, Stack, TextVector

MAX_NAMES = 5  # of a list of tensors, the rest is counted
MAX_LABELS = 8
MAX_ITEMS = 6  # of a tuple in the description of a part
STACK_PARTS = ("attention", "feed_forward", "position", "norm", "norm_placement", "local")


class ImportCard(BaseModel):
    """How tensors were mapped, what the config means, and what was not carried over.

    The fields are the keys of import.json and of `qkv import --json`.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    source: str  # the directory's name, without its path
    layout: str  # the first model_type of the checkpoint format
    architecture: str
    tensors: dict[str, int]  # how many tensors were converted in each way
    tied: list[str] = []
    ignored: list[str] = []
    stored: list[str] = []  # dtypes in the file
    options: dict[str, Any] = {}
    tokenizer: str = "none"
    not_carried: list[str] = []
    self_test: float | None = None

    def with_self_test(self, difference: float) -> "ImportCard":
        return self.model_copy(update={"self_test": difference})

    def lines(self) -> list[tuple[str, str]]:
        """The whole card as pairs of title and text."""
        options = [
            (name.replace("_", " "), format_value(value)) for name, value in self.options.items()
        ]
        return [*self.origin(), *options, *self.proof()]

    def origin(self) -> list[tuple[str, str]]:
        """Where the model comes from, and how its tensors were converted."""
        counts = ", ".join(f"{count} {conversion}" for conversion, count in self.tensors.items())
        return [
            ("source", f"{self.source} ({self.layout}, {self.architecture})"),
            ("tensors", f"{counts}; stored as {', '.join(self.stored)}"),
            ("stored twice", _name_list(self.tied)),
            ("ignored", _name_list(self.ignored)),
        ]

    def proof(self) -> list[tuple[str, str]]:
        """The tokenizer, what was not carried over, and the result of the self-test."""
        lines = [
            ("tokenizer", self.tokenizer),
            ("not carried", "; ".join(self.not_carried) or "nothing was lost"),
        ]
        if self.self_test is not None:
            difference = f"{self.self_test:.1e}"
            lines.append(("self-test", f"kernels and padding differ by {difference} at most"))
        return lines


def format_value(value: Any) -> str:
    """A value of the card for people: integers with thousands separators."""
    if isinstance(value, int):
        return f"{value:,}"
    return str(value)


def _name_list(names: list[str]) -> str:
    if not names:
        return "none"
    text = ", ".join(names[:MAX_NAMES])
    if len(names) > MAX_NAMES:
        text += f" and {len(names) - MAX_NAMES} more"
    return text


def describe_config(config: ModelConfig) -> dict[str, Any]:
    """The sizes of a model, and each part with the settings that differ from its defaults."""
    facts: dict[str, Any] = {
        "family": config.kind.replace("_", "-"),
        "parameters": config.parameters(),
        "vocabulary": config.embedding.vocabulary,
        "length": config.length,
    }
    for name in ("encoder", "decoder"):
        stack = getattr(config, name, None)
        if isinstance(stack, Stack):
            for part, description in _describe_stack(stack).items():
                facts[f"{name}_{part}"] = description
    # A sentence encoder may be limited to fewer tokens than it has positions for.
    if isinstance(config, EncoderOnly) and config.context_length < config.length:
        facts["reads"] = config.context_length
    facts["output"] = _describe_output(config.output)
    return facts


def _describe_stack(stack: Stack) -> dict[str, str]:
    shape = f"{stack.layers} layers"
    if stack.unique_layers is not None:
        shape += f" on {stack.unique_layers} blocks"
    parts = {"shape": f"{shape}, width {stack.width}"}
    for name in STACK_PARTS:
        part = getattr(stack, name)
        if part is not None:
            parts[name] = _describe_part(part)
    return parts


def _describe_output(output: Output) -> str:
    """What the model computes; unlike other parts, defaults are spelled out too."""
    match output:
        case TextVector():
            length = "any length"
            if output.normalize:
                length = "length 1"
            text = f"text vector of {length}, from the {output.pooling.kind}"
            if output.dense:
                text += ", through the pooler"
            return text
        case Classify():
            text = f"labels {', '.join(output.labels[:MAX_LABELS])}"
            if len(output.labels) > MAX_LABELS:
                text += " …"
            return text
        case _:
            text = _describe_part(output)
            if output.tied:
                return f"{text}, tied"
            return f"{text}, with a matrix of its own"


def _describe_part(part: Config) -> str:
    """The kind of a part, and every field that differs from its default."""
    settings = []
    for name, field in type(part).model_fields.items():
        value = getattr(part, name)
        if name == "kind" or value == field.default:
            continue
        text = _short(value)
        if isinstance(value, Config):
            text = f"({_describe_part(value)})"
        settings.append(f"{name.replace('_', ' ')} {text}")
    kind = str(getattr(part, "kind", "")).replace("_", " ")
    if settings:
        return f"{kind}: {', '.join(settings)}".removeprefix(": ")
    return kind


def _short(value: Any) -> str:
    if value is True:
        return "yes"
    if value is False:
        return "no"
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, tuple):
        text = " ".join(map(str, value[:MAX_ITEMS]))
        if len(value) > MAX_ITEMS:
            text += f" … ({len(value)})"
        return text
    return str(value)
