"""The public Python names, package by package: how each is called and what comes out of it."""

import ast
import importlib
import inspect
import re
import textwrap
from types import ModuleType
from typing import Any, is_typeddict

from pydantic import BaseModel

PACKAGES = (
    "qkv", "qkv.attention", "qkv.model", "qkv.text", "qkv.data", "qkv.bundle", "qkv.checkpoints",
    "qkv.engine.embed", "qkv.engine.classify", "qkv.engine.generate", "qkv.engine.translate",
    "qkv.engine.cluster", "qkv.metrics", "qkv.interpret.trace", "qkv.interpret.attribution",
    "qkv.interpret.export", "qkv.checks", "qkv.errors",
)  # fmt: skip
LONG = 60  # characters of a default


def name_lists() -> str:
    return "\n\n".join(_package(importlib.import_module(name)) for name in PACKAGES)


def public_names(module: ModuleType) -> list[str]:
    """`__all__`, or what a module defines itself, in the order it is written."""
    if hasattr(module, "__all__"):
        return [name for name in module.__all__ if not name.startswith("__")]
    return [
        name
        for name, thing in vars(module).items()
        if not name.startswith("_") and getattr(thing, "__module__", "") == module.__name__
    ]


def _package(module: ModuleType) -> str:
    lines = [f"## {module.__name__}", "", _sentence(module), ""]
    for name in public_names(module):
        thing = getattr(module, name)
        lines.append(f"- `{_called(name, thing)}`{_said(thing)}")
        if module.__name__ == "qkv" and _is_class(thing):
            lines += [f"    - `{_called(m, f)}`{_said(f)}" for m, f in _methods(thing)]
    return "\n".join(lines)


def _methods(kind: type) -> list[tuple[str, Any]]:
    """Its own public methods and properties, in the order they are written."""
    found = []
    for name, thing in vars(kind).items():
        thing = getattr(thing, "__func__", thing)
        if not name.startswith("_") and (inspect.isfunction(thing) or isinstance(thing, property)):
            found.append((name, thing))
    return found


def _called(name: str, thing: Any) -> str:
    """The name with what it takes and gives; a choice has its fields on the page of configs."""
    if not (_is_class(thing) or inspect.isfunction(thing)):
        value = repr(thing)
        return f"{name} = {value}" if len(value) <= LONG and "<" not in value else name
    if _is_class(thing) and issubclass(thing, BaseModel):
        return f"{name}(…)" if set(thing.model_fields) - {"kind"} else f"{name}()"
    if _is_class(thing) and issubclass(thing, BaseException):
        return name
    types = _written(thing)
    if is_typeddict(thing):
        return f"{name}({', '.join(f'{field}: {said}' for field, said in types.items())})"
    signature = inspect.signature(thing)
    given = [p for p in signature.parameters.values() if p.name not in ("self", "cls")]
    taken = [_parameter(p, types) for p in given]
    named = sum(p.kind is p.KEYWORD_ONLY for p in given)
    if named and not any(p.kind is p.VAR_POSITIONAL for p in given):
        last = taken.pop() if given[-1].kind is inspect.Parameter.VAR_KEYWORD else None
        taken.insert(len(taken) - named, "*")
        taken += [last] if last else []
    gives = f" -> {types['return']}" if "return" in types else ""
    return f"{name}({', '.join(taken)}){gives}"


def _parameter(given: inspect.Parameter, types: dict[str, str]) -> str:
    stars = {given.VAR_POSITIONAL: "*", given.VAR_KEYWORD: "**"}.get(given.kind, "")
    said = f"{stars}{given.name}" + (f": {types[given.name]}" if given.name in types else "")
    if given.default is given.empty:
        return said
    default = repr(given.default)
    return f"{said} = {default if len(default) <= LONG and '<' not in default else '…'}"


def _written(thing: Any) -> dict[str, str]:
    """The types of what it takes, and of what it gives, as they stand in the source."""
    if _is_class(thing):
        found: dict[str, str] = {}
        for kind in reversed([c for c in thing.__mro__ if c.__module__.startswith("qkv")]):
            for node in _parsed(kind).body:
                if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                    found[node.target.id] = ast.unparse(node.annotation)
                if isinstance(node, ast.FunctionDef) and node.name == "__init__":
                    found |= _of_arguments(node)
        return found
    node = _parsed(thing)
    gives = {} if node.returns is None else {"return": ast.unparse(node.returns).strip("'")}
    return _of_arguments(node) | gives


def _of_arguments(node: ast.FunctionDef) -> dict[str, str]:
    a = node.args
    every = [*a.posonlyargs, *a.args, *a.kwonlyargs, *filter(None, (a.vararg, a.kwarg))]
    return {each.arg: ast.unparse(each.annotation).strip("'") for each in every if each.annotation}


def _is_class(thing: Any) -> bool:
    """One of ours, not an alias of a type."""
    return isinstance(thing, type) and thing.__module__.startswith("qkv")


def _parsed(thing: Any) -> Any:
    return ast.parse(textwrap.dedent(inspect.getsource(thing))).body[0]


def _said(thing: Any) -> str:
    sentence = _sentence(thing)
    return f": {sentence}" if sentence else ""


def _sentence(thing: Any) -> str:
    """The first sentence of its docstring; of a plain value nothing."""
    own = _is_class(thing) or inspect.isfunction(thing)
    own = own or isinstance(thing, ModuleType | property)
    said = inspect.getdoc(thing) if own else None
    if not said or said.startswith(f"{getattr(thing, '__name__', '')}("):  # a dataclass's own
        return ""
    first = " ".join(said.split("\n\n")[0].split())
    return re.split(r"(?<=[.!?]) (?=[A-Z])", first)[0]
