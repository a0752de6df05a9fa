"""What each command prints with --json, as shapes: types stand where values would."""

import json
from typing import Any

from json_answers import answers

KEYS = {"probabilities": "label", "scores": "pattern"}  # objects whose keys are data
EITHER = {  # where these few texts do not show all there may be
    "better": "true or false or nothing", "offset": "whole number or nothing",
    "duplicates": [{"head": "whole number", "distance": "number"}],
    "tied": ["text"], "marks": ["as in words"], "dropped": ["text"], "invented": ["text"],
    "moved_by": "whole number or nothing", "agreement": "number or nothing",
}  # fmt: skip
INDENT = "  "


def shape(command: str) -> str:
    """The shape of what a command prints; of many lines with the same fields, one."""
    alike: dict[tuple[str, ...], list[Any]] = {}
    for line in answers()[command]:
        alike.setdefault(tuple(line), []).append(_shape(line))
    lines = [_written(_merge(shapes)) for shapes in alike.values()]
    asked = command.partition(" (")[0]  # what is in brackets is for the reader of this code
    return f"```text\n$ qkv {asked} … --json\n" + "\n".join(lines) + "\n```"


def _shape(value: Any, key: str = "") -> Any:
    """Types for values: a text for a type, a dict for an object, a list of one for a list."""
    if key in EITHER and isinstance(value, list) == isinstance(EITHER[key], list):
        return EITHER[key]
    if isinstance(value, dict):
        inner = {name: _shape(each, name) for name, each in value.items()}
        if key in KEYS and inner:
            return {f"‹{KEYS[key]}›": _merge(list(inner.values()))}
        return inner
    if isinstance(value, list):
        return [_merge([_shape(each) for each in value])] if value else []
    kinds = {bool: "true or false", int: "whole number", float: "number", str: "text"}
    return kinds.get(type(value), "nothing")


def _merge(shapes: list[Any]) -> Any:
    """One shape for all: fields of objects joined, types that differ named side by side."""
    if all(isinstance(each, dict) for each in shapes):
        names = dict.fromkeys(name for each in shapes for name in each)
        return {n: _merge([each[n] for each in shapes if n in each]) for n in names}
    if all(isinstance(each, list) for each in shapes):
        inside = [item for each in shapes for item in each]
        return [_merge(inside)] if inside else []
    kinds = list(
        dict.fromkeys(each if isinstance(each, str) else _written(each) for each in shapes)
    )
    kinds = [each for each in kinds if each != "nothing"] + ["nothing"] * ("nothing" in kinds)
    return " or ".join(kinds)


def _written(shape: Any, depth: int = 0) -> str:
    if isinstance(shape, str):
        return shape
    if isinstance(shape, list):
        return f"[{_written(shape[0], depth)}, …]" if shape else "[]"
    if not shape:
        return "{}"
    inner, fields, before = INDENT * (depth + 1), [], None
    for name, each in shape.items():
        same = isinstance(each, dict) and each == before
        said = "the same" if same else _written(each, depth + 1)
        fields.append(f"{inner}{name if name.startswith('‹') else json.dumps(name)}: {said}")
        before = each
    return "{\n" + ",\n".join(fields) + "\n" + INDENT * depth + "}"
