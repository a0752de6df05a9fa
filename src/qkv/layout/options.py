"""What a config says, flat and for people: `attention heads: 8`, `rotary base: 10000`."""

from typing import Any

from qkv.model import Classify, EncoderOnly, TextVector
from qkv.model.choice import Choice
from qkv.model.family import Config
from qkv.model.output import Output
from qkv.model.stack import Stack


def options_of(config: Config) -> dict[str, Any]:
    """The sizes, and each part with what it differs in from its defaults."""
    found: dict[str, Any] = {
        "family": config.kind.replace("_", "-"),
        "parameters": config.parameters(),
        "vocabulary": config.embedding.vocabulary,
        "length": config.length,
    }
    for name in ("encoder", "decoder"):
        stack = getattr(config, name, None)
        if isinstance(stack, Stack):
            found |= {f"{name}_{part}": said for part, said in _stack(stack).items()}
    if isinstance(config, EncoderOnly) and config.reads < config.length:
        found["reads"] = config.reads
    found["output"] = _answer(config.output)
    return found


def _answer(output: Output) -> str:
    """What it answers with; the usual is said too, as it matters most."""
    if isinstance(output, TextVector):
        length = "of length 1" if output.unit else "of any length"
        through = ", through the pooler" if output.dense else ""
        return f"text vector {length}, from the {output.pooling.kind}{through}"
    if isinstance(output, Classify):
        return f"labels {', '.join(output.labels[:8])}{' …' if len(output.labels) > 8 else ''}"
    return f"{say(output)}, {'tied' if output.tied else 'with a matrix of its own'}"


def _stack(stack: Stack) -> dict[str, str]:
    shared = "" if stack.distinct is None else f" on {stack.distinct} blocks"
    told = {"shape": f"{stack.layers} layers{shared}, width {stack.width}"}
    for part in ("attention", "feed_forward", "position", "norm", "residual", "local"):
        choice = getattr(stack, part)
        if choice is not None:
            told[part] = say(choice)
    return told


def say(choice: Choice) -> str:
    """Its kind, and every field that is not as usual."""
    told = []
    for name, field in type(choice).model_fields.items():
        value = getattr(choice, name)
        if name == "kind" or value == field.default:
            continue
        shown = f"({say(value)})" if isinstance(value, Choice) else _short(value)
        told.append(f"{name.replace('_', ' ')} {shown}")
    kind = str(getattr(choice, "kind", "")).replace("_", " ")
    return f"{kind}: {', '.join(told)}".removeprefix(": ") if told else kind


def _short(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, tuple):
        shown = " ".join(map(str, value[:6]))
        return f"{shown} … ({len(value)})" if len(value) > 6 else shown
    if isinstance(value, float):
        return f"{value:g}"
    return str(value)
