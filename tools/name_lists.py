"""The public Python names, package by package: each with its signature and first sentence."""

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
MAX_DEFAULT_LENGTH = 60  # characters


def name_lists() -> str:
    return "\n\n".join(_package(importlib.import_module(name)) for name in PACKAGES)


def public_names(module: ModuleType) -> list[str]:
    """`__all__`, or what a module defines itself, in source order."""
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
        lines.append(f"- `{_signature(name, thing)}`{_summary(thing)}")
        if module.__name__ == "qkv" and _is_class(thing):
            lines += [f"    - `{_signature(m, f)}`{_summary(f)}" for m, f in _methods(thing)]
    return "\n".join(lines)


def _methods(kind: type) -> list[tuple[str, Any]]:
    """Its own public methods and properties, in source order."""
    methods = []
    for name, thing in vars(kind).items():
        thing = getattr(thing, "__func__", thing)
        if not name.startswith("_") and (inspect.isfunction(thing) or isinstance(thing, property)):
            methods.append((name, thing))
    return methods


def _signature(name: str, thing: Any) -> str:
    """The name with its signature; the fields of configs are on a page of their own."""
    if not (_is_class(thing) or inspect.isfunction(thing)):
        value = repr(thing)
        return (
            f"{name} = {value}" if len(value) <= MAX_DEFAULT_LENGTH and "<" not in value else name
        )
    if _is_class(thing) and issubclass(thing, BaseModel):
        return f"{name}(…)" if set(thing.model_fields) - {"kind"} else f"{name}()"
    if _is_class(thing) and issubclass(thing, BaseException):
        return name
    types = _annotations(thing)
    if is_typeddict(thing):
        return f"{name}({', '.join(f'{field}: {type_}' for field, type_ in types.items())})"
    signature = inspect.signature(thing)
    parameters = [p for p in signature.parameters.values() if p.name not in ("self", "cls")]
    arguments = [_parameter(p, types) for p in parameters]
    keyword_only = sum(p.kind is p.KEYWORD_ONLY for p in parameters)
    if keyword_only and not any(p.kind is p.VAR_POSITIONAL for p in parameters):
        var_keyword = parameters[-1].kind is inspect.Parameter.VAR_KEYWORD
        arguments.insert(len(arguments) - keyword_only - var_keyword, "*")
    returns = f" -> {types['return']}" if "return" in types else ""
    return f"{name}({', '.join(arguments)}){returns}"


def _parameter(parameter: inspect.Parameter, types: dict[str, str]) -> str:
    stars = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "")
    text = f"{stars}{parameter.name}"
    if parameter.name in types:
        text += f": {types[parameter.name]}"
    if parameter.default is parameter.empty:
        return text
    default = repr(parameter.default)
    if len(default) > MAX_DEFAULT_LENGTH or "<" in default:
        default = "…"
    return f"{text} = {default}"


def _annotations(thing: Any) -> dict[str, str]:
    """The annotations of its parameters and result, as written in the source."""
    if _is_class(thing):
        types: dict[str, str] = {}
        for kind in reversed([c for c in thing.__mro__ if c.__module__.startswith("qkv")]):
            for node in _parsed(kind).body:
                if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                    types[node.target.id] = ast.unparse(node.annotation)
                if isinstance(node, ast.FunctionDef) and node.name == "__init__":
                    types |= _argument_types(node)
        return types
    node = _parsed(thing)
    returns = {} if node.returns is None else {"return": ast.unparse(node.returns).strip("'")}
    return _argument_types(node) | returns


def _argument_types(node: ast.FunctionDef) -> dict[str, str]:
    a = node.args
    every = [*a.posonlyargs, *a.args, *a.kwonlyargs, *filter(None, (a.vararg, a.kwarg))]
    return {each.arg: ast.unparse(each.annotation).strip("'") for each in every if each.annotation}


def _is_class(thing: Any) -> bool:
    """One of ours, not an alias of a type."""
    return isinstance(thing, type) and thing.__module__.startswith("qkv")


def _parsed(thing: Any) -> Any:
    return ast.parse(textwrap.dedent(inspect.getsource(thing))).body[0]


def _summary(thing: Any) -> str:
    sentence = _sentence(thing)
    return f": {sentence}" if sentence else ""


def _sentence(thing: Any) -> str:
    """The first sentence of its docstring; \"\" for a plain value."""
    own = _is_class(thing) or inspect.isfunction(thing)
    own = own or isinstance(thing, ModuleType | property)
    text = inspect.getdoc(thing) if own else None
    if not text or text.startswith(f"{getattr(thing, '__name__', '')}("):  # generated by dataclass
        return ""
    first = " ".join(text.split("\n\n")[0].split())
    return re.split(r"(?<=[.!?]) (?=[A-Z])", first)[0]
