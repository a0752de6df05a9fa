"""Every config of a recipe as a section: its docstring, its fields, their types and defaults.

Everything is read from the classes: docstrings, JSON schema, and the comments next to the fields.
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

    return "\n\n".join(_section(config) for config in _reachable(Recipe))


def _reachable(root: type[BaseModel]) -> list[type[BaseModel]]:
    """The root and every config its fields may hold, breadth first."""
    configs: list[type[BaseModel]] = []
    queue = [root]
    while queue:
        config = queue.pop(0)
        if config in configs:
            continue
        configs.append(config)
        for field in config.model_fields.values():
            queue += _configs_in(field.annotation)
    return configs


def _configs_in(annotation: Any) -> list[type[BaseModel]]:
    from qkv.model import PartConfig

    if inspect.isclass(annotation) and issubclass(annotation, PartConfig):
        if "kind" in annotation.model_fields:
            return [annotation]
        return [config for config in annotation.variants().values() if not _is_foreign(config)]
    if inspect.isclass(annotation) and issubclass(annotation, BaseModel):
        return [annotation]
    return [config for part in getattr(annotation, "__args__", ()) for config in _configs_in(part)]


def _is_foreign(config: type) -> bool:
    """Whether it is a part of another package or of a test, which may be registered too."""
    return not config.__module__.startswith("qkv.")


def _foreign_names() -> set[str]:
    from qkv.model.config import PartConfig

    names = set()
    for family in PartConfig.__subclasses__():
        names |= {config.__name__ for config in family.variants().values() if _is_foreign(config)}
    return names


def _section(config: type[BaseModel]) -> str:
    schema = config.model_json_schema()
    kind = schema["properties"].get("kind", {}).get("const")
    lines = [f"## {config.__name__}", "", _prose(config), ""]
    if kind:
        lines += [f'`kind = "{kind}"`', ""]
    rows = [_row(config, name, schema) for name in config.model_fields if not _is_kind(name, kind)]
    if rows:
        lines += ["| field | type | default | |", "|---|---|---|---|", *rows]
    else:
        lines += ["No fields."]
    return "\n".join(lines).rstrip()


def _is_kind(name: str, kind: str | None) -> bool:
    return name == "kind" and kind is not None


def _prose(config: type[BaseModel]) -> str:
    """The docstring, each paragraph as one line."""
    text = inspect.cleandoc(config.__dict__.get("__doc__") or "")
    return "\n\n".join(" ".join(part.split()) for part in text.split("\n\n"))


def _row(config: type[BaseModel], name: str, schema: Schema) -> str:
    field = config.model_fields[name]
    default = "–" if field.default is PydanticUndefined else _default(field.default)
    type_ = _type(schema["properties"][name])
    return f"| `{name}` | {type_} | {default} | {_comments(config).get(name, '')} |"


def _default(value: Any) -> str:
    if isinstance(value, BaseModel):
        changed = value.model_dump(exclude_defaults=True)
        inside = ", ".join(f"{name}={value!r}" for name, value in changed.items())
        return f"`{type(value).__name__}({inside})`"
    if value is None:
        return "none"
    return f"`{json.dumps(value)}`"


def _type(schema: Schema) -> str:
    """A type in words; configs as links to their sections."""
    if "$ref" in schema:
        name = schema["$ref"].rsplit("/", 1)[1]
        return f"[{name}](#{name.lower()})"
    if "enum" in schema:
        return ", ".join(f"`{value}`" for value in schema["enum"])
    if "const" in schema:
        return f"`{schema['const']}`"
    options = schema.get("oneOf") or schema.get("anyOf") or schema.get("allOf")
    if options:
        foreign = {f"#/$defs/{name}" for name in _foreign_names()}
        options = [option for option in options if option.get("$ref") not in foreign]
        types = [_type(option) for option in options if option.get("type") != "null"]
        return " or ".join((", ".join(types[:-1]), types[-1])) if len(types) > 1 else types[0]
    if schema.get("type") == "array":
        return "list of strings" if schema.get("items") == {"type": "string"} else "list"
    words = {"integer": "integer", "number": "number", "boolean": "boolean"}
    return " ".join(filter(None, (words.get(schema.get("type", ""), "string"), _bounds(schema))))


def _bounds(schema: Schema) -> str:
    signs = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤", "exclusiveMaximum": "<"}
    return ", ".join(f"{sign} {schema[name]:g}" for name, sign in signs.items() if name in schema)


def _comments(config: type[BaseModel]) -> dict[str, str]:
    """The comment next to each field, in this class or the one it inherits from."""
    comments: dict[str, str] = {}
    for parent in reversed(config.__mro__):
        if not issubclass(parent, BaseModel) or parent is BaseModel:
            continue
        code = textwrap.dedent(inspect.getsource(parent))
        lines = code.splitlines()
        for node in ast.parse(code).body[0].body:  # type: ignore[attr-defined]
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                comment = re.search(r"  # (.*)$", lines[node.lineno - 1])
                if comment:
                    comments[node.target.id] = comment[1]
    return comments
