"""What each command prints with --json, as shapes: types in the place of values."""

import json
from typing import Any

from json_answers import answers

DATA_KEYS = {"probabilities": "label", "scores": "pattern"}  # objects whose keys are data
UNIONS = {  # values that these few texts do not show
    "better": "boolean or null", "offset": "integer or null",
    "duplicates": [{"head": "integer", "distance": "number"}],
    "tied": ["string"], "marks": ["as in words"], "dropped": ["string"], "invented": ["string"],
    "moved_by": "integer or null", "agreement": "number or null",
}  # fmt: skip
INDENT = "  "


def shape(command: str) -> str:
    """The shape of a command's output; one for all lines with the same fields."""
    lines_by_fields: dict[tuple[str, ...], list[Any]] = {}
    for line in answers()[command]:
        lines_by_fields.setdefault(tuple(line), []).append(_shape(line))
    lines = [_format(_merge(shapes)) for shapes in lines_by_fields.values()]
    shown = command.partition(" (")[0]  # the part in brackets tells two shapes apart
    return f"```text\n$ qkv {shown} … --json\n" + "\n".join(lines) + "\n```"


def _shape(value: Any, key: str = "") -> Any:
    """The type of a value: a string, a dict for an object, a list of one type for a list."""
    if key in UNIONS and isinstance(value, list) == isinstance(UNIONS[key], list):
        return UNIONS[key]
    if isinstance(value, dict):
        inner = {name: _shape(each, name) for name, each in value.items()}
        if key in DATA_KEYS and inner:
            return {f"‹{DATA_KEYS[key]}›": _merge(list(inner.values()))}
        return inner
    if isinstance(value, list):
        return [_merge([_shape(each) for each in value])] if value else []
    kinds = {bool: "boolean", int: "integer", float: "number", str: "string"}
    return kinds.get(type(value), "null")


def _merge(shapes: list[Any]) -> Any:
    """One shape for all: the union of the fields of objects, and of differing types."""
    if all(isinstance(each, dict) for each in shapes):
        names = dict.fromkeys(name for each in shapes for name in each)
        return {n: _merge([each[n] for each in shapes if n in each]) for n in names}
    if all(isinstance(each, list) for each in shapes):
        inside = [item for each in shapes for item in each]
        return [_merge(inside)] if inside else []
    kinds = list(dict.fromkeys(each if isinstance(each, str) else _format(each) for each in shapes))
    kinds = [each for each in kinds if each != "null"] + ["null"] * ("null" in kinds)
    return " or ".join(kinds)


def _format(shape: Any, depth: int = 0) -> str:
    if isinstance(shape, str):
        return shape
    if isinstance(shape, list):
        return f"[{_format(shape[0], depth)}, …]" if shape else "[]"
    if not shape:
        return "{}"
    inner = INDENT * (depth + 1)
    fields = []
    previous = None
    for name, each in shape.items():
        same = isinstance(each, dict) and each == previous
        text = "the same" if same else _format(each, depth + 1)
        fields.append(f"{inner}{name if name.startswith('‹') else json.dumps(name)}: {text}")
        previous = each
    return "{\n" + ",\n".join(fields) + "\n" + INDENT * depth + "}"
