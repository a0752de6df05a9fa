"""Every choice of a recipe as a section: what it is, its fields, what they take, their defaults.

What stands here is read from the classes: their docstrings, their schema, and the remarks beside
their fields.
"""

import ast
import inspect
import json
import re
import textwrap
from typing import Any

from pydantic import BaseModel
from pydantic_core import PydanticUndefined

Schema = dict[str, Any]


def config_tables() -> str:
    from qkv.training.recipe import Recipe

    return "\n\n".join(_section(choice) for choice in _reachable(Recipe))


def _reachable(root: type[BaseModel]) -> list[type[BaseModel]]:
    """The root and every choice its fields may hold, in the order one meets them."""
    found: list[type[BaseModel]] = []
    waiting = [root]
    while waiting:
        choice = waiting.pop(0)
        if choice in found:
            continue
        found.append(choice)
        for field in choice.model_fields.values():
            waiting += _choices_in(field.annotation)
    return found


def _choices_in(annotation: Any) -> list[type[BaseModel]]:
    from qkv.model import PartConfig

    if inspect.isclass(annotation) and issubclass(annotation, PartConfig):
        return (
            [annotation] if "kind" in annotation.model_fields else [*annotation.variants().values()]
        )
    if inspect.isclass(annotation) and issubclass(annotation, BaseModel):
        return [annotation]
    return [choice for part in getattr(annotation, "__args__", ()) for choice in _choices_in(part)]


def _section(choice: type[BaseModel]) -> str:
    schema = choice.model_json_schema()
    kind = schema["properties"].get("kind", {}).get("const")
    lines = [f"## {choice.__name__}", "", _prose(choice), ""]
    if kind:
        lines += [f'`kind = "{kind}"`', ""]
    rows = [_row(choice, name, schema) for name in choice.model_fields if not _is_kind(name, kind)]
    if rows:
        lines += ["| field | takes | if not given | |", "|---|---|---|---|", *rows]
    else:
        lines += ["No fields."]
    return "\n".join(lines).rstrip()


def _is_kind(name: str, kind: str | None) -> bool:
    return name == "kind" and kind is not None


def _prose(choice: type[BaseModel]) -> str:
    """The docstring; its wrapped lines as paragraphs."""
    said = inspect.cleandoc(choice.__dict__.get("__doc__") or "")
    return "\n\n".join(" ".join(part.split()) for part in said.split("\n\n"))


def _row(choice: type[BaseModel], name: str, schema: Schema) -> str:
    field = choice.model_fields[name]
    default = "–" if field.default is PydanticUndefined else _default(field.default)
    takes = _takes(schema["properties"][name])
    return f"| `{name}` | {takes} | {default} | {_remarks(choice).get(name, '')} |"


def _default(value: Any) -> str:
    if isinstance(value, BaseModel):
        changed = value.model_dump(exclude_defaults=True)
        inside = ", ".join(f"{name}={value!r}" for name, value in changed.items())
        return f"`{type(value).__name__}({inside})`"
    if value is None:
        return "nothing"
    return f"`{json.dumps(value)}`"


def _takes(schema: Schema) -> str:
    """A type in words; choices as links to their sections."""
    if "$ref" in schema:
        name = schema["$ref"].rsplit("/", 1)[1]
        return f"[{name}](#{name.lower()})"
    if "enum" in schema:
        return ", ".join(f"`{value}`" for value in schema["enum"])
    if "const" in schema:
        return f"`{schema['const']}`"
    options = schema.get("oneOf") or schema.get("anyOf") or schema.get("allOf")
    if options:
        said = [_takes(option) for option in options if option.get("type") != "null"]
        return " or ".join((", ".join(said[:-1]), said[-1])) if len(said) > 1 else said[0]
    if schema.get("type") == "array":
        return "a list of texts" if schema.get("items") == {"type": "string"} else "a list"
    words = {"integer": "whole number", "number": "number", "boolean": "`true` or `false`"}
    return " ".join(filter(None, (words.get(schema.get("type", ""), "text"), _bounds(schema))))


def _bounds(schema: Schema) -> str:
    signs = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤", "exclusiveMaximum": "<"}
    said = [f"{sign} {schema[name]:g}" for name, sign in signs.items() if name in schema]
    return ", ".join(said)


def _remarks(choice: type[BaseModel]) -> dict[str, str]:
    """What stands as a comment beside a field, here or in a class it comes from."""
    found: dict[str, str] = {}
    for parent in reversed(choice.__mro__):
        if not issubclass(parent, BaseModel) or parent is BaseModel:
            continue
        code = textwrap.dedent(inspect.getsource(parent))
        lines = code.splitlines()
        for node in ast.parse(code).body[0].body:  # type: ignore[attr-defined]
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                remark = re.search(r"  # (.*)$", lines[node.lineno - 1])
                if remark:
                    found[node.target.id] = remark[1]
    return found
