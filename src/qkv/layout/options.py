"""What a config says, flat and for people: `attention heads: 8`, `rotary base: 10000`."""

from typing import Any

from qkv.model.choice import Choice
from qkv.model.family import Config
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
    found["output"] = say(config.output)
    return found


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
    kind = str(getattr(choice, "kind", type(choice).__name__)).replace("_", " ")
    return f"{kind}: {', '.join(told)}" if told else kind


def _short(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, tuple) and len(value) > 6:
        return f"{len(value)} of them"
    if isinstance(value, float):
        return f"{value:g}"
    return str(value)
