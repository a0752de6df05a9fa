"""A conversation as one text, by the template that came with the model.

A template is a program (in Jinja) written by whoever published the model. It runs in Jinja's
sandbox, which gives it no way to Python itself, and on an allowance: so many steps, and so many
characters made on the way. What it cannot do is harm; what it can still do is use up its
allowance, which takes some seconds at worst.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import wraps
from typing import Any

from jinja2 import TemplateError, nodes
from jinja2.compiler import CodeGenerator, Frame
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.runtime import Context, Undefined
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace

from qkv.errors import DataError
from qkv.files import one_line, shown

# FOLDED text/template: What a chat template may use: the filters, methods, tags and functions
#   real templates use.
# FOLDED text/sandbox: Where a template runs: Jinja's sandbox, with a limit to the work it may
#   do.
#
#   The sandbox keeps a template away from Python's insides, and a `range` short. It does not
#   stop
#   `"a" * 10**12`, a text that doubles itself in a loop, or loops inside loops. So here every
#   turn of
#   a loop, call, filter and operator costs a step, every text made costs its length, no whole
#   number
#   may be long, and methods and filters are those that real templates use. What is left:
#   comparing
#   lists that hold one another many times over is not counted, and a step once begun is not
#   broken off.

LONGEST_TEMPLATE = 1_000_000  # characters


def render(
    template: str,
    messages: Sequence[Mapping[str, str]],
    add_generation_prompt: bool,
    variables: Mapping[str, str],
) -> str:
    """The text `transformers` would make of the same messages.

    Only plain text goes in: a message is a mapping of strings, or of what JSON knows.
    """

    if len(template) > LONGEST_TEMPLATE:
        raise DataError(
            f"the chat template has {len(template):,} characters; "
            f"at most {LONGEST_TEMPLATE:,} are run"
        )
    given = {
        "messages": _plain(messages),
        "tools": None,
        "documents": None,
        "add_generation_prompt": add_generation_prompt,
        **variables,
    }
    sandbox = Sandbox(raise_exception=_refuse, strftime_now=_strftime_now, tojson=_tojson)
    try:
        return sandbox.run(template, given)
    except _RefusalError as error:
        raise DataError(f"the chat template refuses these messages: {one_line(error)}") from error
    except RecursionError:
        raise DataError("the chat template is nested too deeply, or calls itself forever") from None
    except TemplateError as error:
        raise DataError(f"the chat template cannot be used: {one_line(error)}") from error
    except Exception as error:  # a template can raise whatever its operators and methods do
        what = f"{type(error).__name__}: {one_line(error)}"
        raise DataError(f"the chat template fails on these messages: {what}") from error


class _RefusalError(Exception):
    """What a template says with raise_exception."""


def _refuse(message: object) -> None:
    raise _RefusalError(str(message))


def _strftime_now(format: str) -> str:
    return datetime.now().strftime(format)


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """JSON as it is; Jinja's own filter writes < > & ' for a web page."""
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


def _plain(messages: Sequence[Mapping[str, str]]) -> list[dict[str, Any]]:
    """A copy of nothing but JSON's own types, which have no methods that could do harm."""
    try:
        plain = json.loads(json.dumps([dict(message) for message in messages]))
    except (TypeError, ValueError, RecursionError) as error:
        raise DataError(
            f"messages must be mappings of text, such as {{'role': 'user', 'content': 'Hi'}}: "
            f"{one_line(error)}"
        ) from error
    return list(plain)


FILTERS = {
    "abs", "attr", "capitalize", "count", "d", "default", "dictsort", "e", "escape", "first",
    "float", "groupby", "int", "items", "join", "last", "length", "list", "lower", "map", "max",
    "min", "reject", "rejectattr", "replace", "reverse", "safe", "select", "selectattr", "sort",
    "string", "title", "trim", "truncate", "unique", "upper", "urlencode", "wordcount",
}  # fmt: skip

METHODS = {
    "capitalize", "casefold", "copy", "count", "endswith", "find", "format", "get", "index",
    "isalnum", "isalpha", "isdecimal", "isdigit", "islower", "isnumeric", "isspace", "istitle",
    "isupper", "items", "join", "keys", "lower", "lstrip", "partition", "removeprefix",
    "removesuffix", "replace", "rfind", "rindex", "rpartition", "rsplit", "rstrip", "split",
    "splitlines", "startswith", "strip", "swapcase", "title", "upper", "values",
}  # fmt: skip

BITS = 10_000  # of a whole number: about 3,000 digits


class Counted(CodeGenerator):
    """Makes `~` an operation like the others, and every loop count its turns."""

    def visit_Concat(self, node: nodes.Concat, frame: Frame) -> None:  # noqa: N802
        self.write("environment.concat_of((")
        for part in node.nodes:
            self.visit(part, frame)
            self.write(", ")
        self.write("))")

    def visit_Template(self, node: nodes.Template, frame: Frame | None = None) -> None:  # noqa: N802
        for loop in node.find_all(nodes.For):
            turns = nodes.Filter(loop.iter, "turns", [], [], None, None)
            loop.iter = turns.set_lineno(loop.lineno).set_environment(self.environment)
        refuse_long(*(constant.value for constant in node.find_all(nodes.Const)))
        super().visit_Template(node, frame)


class Generation(Extension):
    """{% generation %}, by which some templates mark what the assistant said; here it is text."""

    tags = {"generation"}  # noqa: RUF012

    def parse(self, parser: Parser) -> list[nodes.Node]:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return [nodes.Scope(body).set_lineno(line)]


class Plain(Namespace):
    """Jinja's namespace, without names that begin with an underscore."""

    def __init__(*args: Any, **kwargs: Any) -> None:
        given = dict(*args[1:], **kwargs)
        for name in given:
            _refuse_private(name)
        Namespace.__init__(args[0], given)

    def __setitem__(self, name: str, value: Any) -> None:
        _refuse_private(name)
        super().__setitem__(name, value)


class Dict:
    """`dict` that is no class, so nothing can be reached through it."""

    def __call__(self, *args: Any, **kwargs: Any) -> dict[Any, Any]:
        return dict(*args, **kwargs)


def refuse_long(*numbers: object) -> None:
    """Work on a whole number may take the square of its length, and a product is as long as both.

    So none is worked on that is longer than BITS, and no result is longer than twice that.
    """
    if any(isinstance(number, int) and number.bit_length() > BITS for number in numbers):
        raise SecurityError(f"a whole number of more than {BITS:,} bits is too large here")


def _refuse_private(name: object) -> None:
    if isinstance(name, str) and name.startswith("_"):
        raise SecurityError(f"a namespace holds no name like {name!r}")


STEPS = 300_000

SECONDS = 10

CHARACTERS = 20_000_000


class Sandbox(ImmutableSandboxedEnvironment):
    """For one run of one template."""

    intercepted_binops = frozenset(("+", "-", "*", "/", "//", "%", "**"))

    def __init__(self, tojson: Callable[..., str], **functions: Callable[..., Any]) -> None:
        # Not optimized: what is constant would be worked out before anything is counted.
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            optimized=False,
            finalize=self.text,
            extensions=[Generation, loopcontrols],
        )
        self.code_generator_class = Counted
        self.steps, self.characters, self.ends = STEPS, CHARACTERS, time.monotonic() + SECONDS
        known = {name: self.filters[name] for name in FILTERS} | {"tojson": tojson}
        self.filters = {name: self.counted(name, known[name]) for name in known}
        self.filters["turns"] = self.turns
        kept = {name: self.globals[name] for name in ("range", "cycler", "joiner")}
        self.globals = {**kept, "dict": Dict(), "namespace": Plain, **functions}

    def run(self, template: str, given: Mapping[str, Any]) -> str:
        return "".join(self.from_string(template).generate(given))

    def spend(self, length: int = 0) -> None:
        """One step, and this many characters."""
        self.steps -= 1
        self.characters -= length
        if self.steps < 0 or self.characters < 0 or time.monotonic() > self.ends:
            raise SecurityError(
                f"it takes more than {SECONDS} seconds, {STEPS:,} steps "
                f"or {CHARACTERS:,} characters"
            )

    def weigh(self, value: Any) -> None:
        """Spends all a value holds: a small list can hold one long text many times."""
        waiting = [value]
        while waiting:
            value = waiting.pop()
            self.spend(_length(value))
            if isinstance(value, Mapping):
                waiting += [*value.keys(), *value.values()]
            elif isinstance(value, list | tuple):
                waiting += value

    def text(self, value: Any) -> Any:
        self.weigh(value)
        return value if isinstance(value, Undefined) else str(value)

    def turns(self, items: Iterable[Any]) -> Iterator[Any]:
        for item in items:
            self.spend()
            yield item

    def parts(self, items: Iterable[Any], between: object = "") -> Iterator[Any]:
        for item in items:
            self.weigh(item)
            self.spend(_length(between))
            yield item

    def concat_of(self, parts: Iterable[Any]) -> str:
        return "".join(str(self.text(part)) for part in parts)

    def counted(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def limited(*args: Any, **kwargs: Any) -> Any:
            # The first argument of some is Jinja's own.
            own = 1 if hasattr(function, "jinja_pass_arg") else 0
            args = (*args[:own], *self.foresee(name, args[own:], kwargs))
            made = function(*args, **kwargs)
            refuse_long(made)
            self.spend(_length(made))
            return made

        return limited

    def call(__self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: N805
        owner, name = getattr(__obj, "__self__", None), getattr(__obj, "__name__", "")
        if isinstance(owner, str | bytes | int | float | list | tuple | dict):
            if name not in METHODS:
                raise SecurityError(f"{type(owner).__name__}.{name} is not for templates")
            if name == "join":
                args = (list(__self.parts(args[0], owner)), *args[1:])
            else:
                _, *args = __self.foresee(name, (owner, *args), kwargs)  # type: ignore[assignment]
        made = super().call(__context, __obj, *args, **kwargs)
        __self.spend(_length(made))
        return made

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
        wrapped = super().wrap_str_format(value)
        if wrapped is None:
            return None

        def limited(*args: Any, **kwargs: Any) -> str:
            self.foresee("format", (value.__self__, *args), kwargs)
            return wrapped(*args, **kwargs)

        return limited

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        refuse_long(left, right)
        if operator == "*":
            for one, other in ((left, right), (right, left)):
                if isinstance(one, int) and not isinstance(other, int | float):
                    self.spend(max(one, 0) * _length(other))
        elif operator == "**" and isinstance(left, int) and isinstance(right, int):
            if left.bit_length() * right > BITS:
                raise SecurityError(f"a number to the power of {shown(right)} is too large here")
        elif operator == "%" and isinstance(left, str):
            self.foresee("format", (left, right), {})
        made = super().call_binop(context, operator, left, right)
        self.spend(_length(made))
        return made

    def foresee(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
        """Spends beforehand what could make a small value huge at one stroke; the arguments."""
        values = [*args, *kwargs.values()]
        if name == "replace":
            lengths = [_length(value) for value in values[:3]]
            text, old, new = (*lengths, 0, 0, 0)[:3]
            self.spend((text // max(old, 1) + 1) * new)
        elif name == "format":
            form = str(values[0])
            if re.search(r"\d{4}|\*|\{[^}]*\{", form):
                raise SecurityError("a width in a format is too large, or is no number")
            for _ in range(form.count("%") + form.count("{")):
                self.weigh(values[1:])
        elif name == "join":
            between = values[1] if len(values) > 1 else ""
            return (self.parts(args[0], between), *args[1:])
        elif name in ("string", "tojson"):
            self.weigh(args[0])
            for value in values[1:]:
                _refuse_wide(value)
        return args


def _refuse_wide(number: object) -> None:
    if isinstance(number, int | float) and number > 1000:
        raise SecurityError(f"{shown(number)} is too large here")


def _length(value: object) -> int:
    if isinstance(value, int):
        return value.bit_length() // 8
    return len(value) if isinstance(value, str | bytes | list | tuple | dict | set) else 0
