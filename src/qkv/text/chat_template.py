"""Chat templates: a conversation rendered as the one text a model was trained on.

A template is a Jinja program written by whoever published the model. It runs in Jinja's sandbox,
which keeps it away from Python's internals, and on a budget: so many steps, and so many characters
of intermediate text. A malicious template can at worst use up its budget, which takes some seconds.

The sandbox alone does not stop `"a" * 10**12`, a string that doubles itself in a loop, or nested
loops. So every loop iteration, call, filter and operator costs a step, every string costs its
length, integers are limited in size, and only the methods and filters that real templates use are
allowed. Two costs remain uncounted: comparing lists that contain one another many times over, and
the time of a single step once it has begun.
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
from qkv.files import one_line, short_repr

MAX_TEMPLATE_CHARACTERS = 1_000_000  # characters


def render(
    template: str,
    messages: Sequence[Mapping[str, str]],
    add_generation_prompt: bool,
    variables: Mapping[str, str],
) -> str:
    """The text `transformers` would make of the same messages.

    Messages are mappings of strings, or of any other JSON values. Raises DataError if the template
    refuses the messages, fails on them, or exceeds its budget.
    """
    if len(template) > MAX_TEMPLATE_CHARACTERS:
        raise DataError(
            f"the chat template has {len(template):,} characters; at most "
            f"{MAX_TEMPLATE_CHARACTERS:,} are run"
        )
    context = {
        "messages": _json_copy(messages),
        "tools": None,
        "documents": None,
        "add_generation_prompt": add_generation_prompt,
        **variables,
    }
    sandbox = Sandbox(raise_exception=_refuse, strftime_now=_strftime_now, tojson=_tojson)
    try:
        return sandbox.run(template, context)
    except _RefusalError as error:
        raise DataError(f"the chat template refuses these messages: {one_line(error)}") from error
    except RecursionError:
        raise DataError("the chat template is nested too deeply, or calls itself forever") from None
    except TemplateError as error:
        raise DataError(f"the chat template cannot be used: {one_line(error)}") from error
    except Exception as error:  # a template can raise whatever its operators and methods do
        message = f"{type(error).__name__}: {one_line(error)}"
        raise DataError(f"the chat template fails on these messages: {message}") from error


class _RefusalError(Exception):
    """Raised by a template through its raise_exception()."""


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
    """Plain JSON; Jinja's own filter escapes < > & ' for HTML."""
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


def _json_copy(messages: Sequence[Mapping[str, str]]) -> list[dict[str, Any]]:
    """A copy in JSON's own types, which have no methods that could do harm."""
    try:
        copies = json.loads(json.dumps([dict(message) for message in messages]))
    except (TypeError, ValueError, RecursionError) as error:
        raise DataError(
            f"messages must be mappings of text, such as {{'role': 'user', 'content': 'Hi'}}: "
            f"{one_line(error)}"
        ) from error
    return list(copies)


ALLOWED_FILTERS = {
    "abs", "attr", "capitalize", "count", "d", "default", "dictsort", "e", "escape", "first",
    "float", "groupby", "int", "items", "join", "last", "length", "list", "lower", "map", "max",
    "min", "reject", "rejectattr", "replace", "reverse", "safe", "select", "selectattr", "sort",
    "string", "title", "trim", "truncate", "unique", "upper", "urlencode", "wordcount",
}  # fmt: skip

ALLOWED_METHODS = {
    "capitalize", "casefold", "copy", "count", "endswith", "find", "format", "get", "index",
    "isalnum", "isalpha", "isdecimal", "isdigit", "islower", "isnumeric", "isspace", "istitle",
    "isupper", "items", "join", "keys", "lower", "lstrip", "partition", "removeprefix",
    "removesuffix", "replace", "rfind", "rindex", "rpartition", "rsplit", "rstrip", "split",
    "splitlines", "startswith", "strip", "swapcase", "title", "upper", "values",
}  # fmt: skip

MAX_INT_BITS = 10_000  # about 3,000 digits


COUNT_ITERATIONS = "count_iterations"  # a filter that only compiled loops use


class CountingCodeGenerator(CodeGenerator):
    """Compiles `~` as a counted operation, and makes every loop count its iterations."""

    def visit_Concat(self, node: nodes.Concat, frame: Frame) -> None:  # noqa: N802
        self.write("environment.concatenate((")
        for part in node.nodes:
            self.visit(part, frame)
            self.write(", ")
        self.write("))")

    def visit_Template(self, node: nodes.Template, frame: Frame | None = None) -> None:  # noqa: N802
        for loop in node.find_all(nodes.For):
            counted = nodes.Filter(loop.iter, COUNT_ITERATIONS, [], [], None, None)
            loop.iter = counted.set_lineno(loop.lineno).set_environment(self.environment)
        _check_int_size(*(constant.value for constant in node.find_all(nodes.Const)))
        super().visit_Template(node, frame)


class GenerationTag(Extension):
    """{% generation %}, by which templates delimit the assistant's turns; here it has no effect."""

    tags = {"generation"}  # noqa: RUF012

    def parse(self, parser: Parser) -> list[nodes.Node]:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return [nodes.Scope(body).set_lineno(line)]


class SafeNamespace(Namespace):
    """Jinja's namespace, without names that begin with an underscore."""

    def __init__(*args: Any, **kwargs: Any) -> None:
        # As in Jinja, `self` is not named, so that a template may set a variable called self.
        variables = dict(*args[1:], **kwargs)
        for name in variables:
            _check_public(name)
        Namespace.__init__(args[0], variables)

    def __setitem__(self, name: str, value: Any) -> None:
        _check_public(name)
        super().__setitem__(name, value)


class DictFunction:
    """`dict` as a plain callable: through the class, a template could reach its methods."""

    def __call__(self, *args: Any, **kwargs: Any) -> dict[Any, Any]:
        return dict(*args, **kwargs)


def _check_int_size(*numbers: object) -> None:
    """Raises SecurityError for an integer of more than MAX_INT_BITS bits.

    Arithmetic may take time quadratic in the length, and a product is as long as both factors
    together; so no operand is longer than the limit, and no result longer than twice that.
    """
    if any(isinstance(number, int) and number.bit_length() > MAX_INT_BITS for number in numbers):
        raise SecurityError(f"an integer of more than {MAX_INT_BITS:,} bits is too large here")


def _check_public(name: object) -> None:
    if isinstance(name, str) and name.startswith("_"):
        raise SecurityError(f"a namespace may not hold the private name {name!r}")


# The budget of one run.
MAX_STEPS = 300_000
MAX_SECONDS = 10
MAX_CHARACTERS = 20_000_000


class Sandbox(ImmutableSandboxedEnvironment):
    """The environment of one run of one template, with the budget it has left."""

    intercepted_binops = frozenset(("+", "-", "*", "/", "//", "%", "**"))

    def __init__(self, tojson: Callable[..., str], **functions: Callable[..., Any]) -> None:
        # Not optimized: the optimizer would evaluate constant expressions without counting them.
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            optimized=False,
            finalize=self.to_text,
            extensions=[GenerationTag, loopcontrols],
        )
        self.code_generator_class = CountingCodeGenerator
        self.steps_left = MAX_STEPS
        self.characters_left = MAX_CHARACTERS
        self.deadline = time.monotonic() + MAX_SECONDS
        allowed = {name: self.filters[name] for name in ALLOWED_FILTERS} | {"tojson": tojson}
        self.filters = {name: self.count_filter(name, allowed[name]) for name in allowed}
        self.filters[COUNT_ITERATIONS] = self.count_iterations
        globals_ = {name: self.globals[name] for name in ("range", "cycler", "joiner")}
        self.globals = {**globals_, "dict": DictFunction(), "namespace": SafeNamespace, **functions}

    def run(self, template: str, context: Mapping[str, Any]) -> str:
        return "".join(self.from_string(template).generate(context))

    def spend(self, length: int = 0) -> None:
        """Charge one step and this many characters; raises SecurityError if over budget."""
        self.steps_left -= 1
        self.characters_left -= length
        is_over = self.steps_left < 0 or self.characters_left < 0
        if is_over or time.monotonic() > self.deadline:
            raise SecurityError(
                f"it takes more than {MAX_SECONDS} seconds, {MAX_STEPS:,} steps or "
                f"{MAX_CHARACTERS:,} characters"
            )

    def spend_contents(self, value: Any) -> None:
        """Charge all a value contains: a small list can hold one long string many times."""
        stack = [value]
        while stack:
            value = stack.pop()
            self.spend(_length(value))
            if isinstance(value, Mapping):
                stack += [*value.keys(), *value.values()]
            elif isinstance(value, list | tuple):
                stack += value

    def to_text(self, value: Any) -> Any:
        """A value as it is printed; Undefined stays, so that Jinja can complain about it."""
        self.spend_contents(value)
        if isinstance(value, Undefined):
            return value
        return str(value)

    def count_iterations(self, items: Iterable[Any]) -> Iterator[Any]:
        for item in items:
            self.spend()
            yield item

    def count_join(self, items: Iterable[Any], separator: object = "") -> Iterator[Any]:
        for item in items:
            self.spend_contents(item)
            self.spend(_length(separator))
            yield item

    def concatenate(self, values: Iterable[Any]) -> str:
        return "".join(str(self.to_text(value)) for value in values)

    def count_filter(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def limited(*args: Any, **kwargs: Any) -> Any:
            # Some filters take Jinja's context or environment as their first argument.
            skip = int(hasattr(function, "jinja_pass_arg"))
            args = (*args[:skip], *self.spend_ahead(name, args[skip:], kwargs))
            result = function(*args, **kwargs)
            _check_int_size(result)
            self.spend(_length(result))
            return result

        return limited

    def call(__self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: N805
        owner = getattr(__obj, "__self__", None)
        name = getattr(__obj, "__name__", "")
        if isinstance(owner, str | bytes | int | float | list | tuple | dict):
            if name not in ALLOWED_METHODS:
                raise SecurityError(f"{type(owner).__name__}.{name} is not for templates")
            if name == "join":
                args = (list(__self.count_join(args[0], owner)), *args[1:])
            else:
                _, *args = __self.spend_ahead(name, (owner, *args), kwargs)  # type: ignore[assignment]
        result = super().call(__context, __obj, *args, **kwargs)
        __self.spend(_length(result))
        return result

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
        wrapped = super().wrap_str_format(value)
        if wrapped is None:
            return None

        def limited(*args: Any, **kwargs: Any) -> str:
            self.spend_ahead("format", (value.__self__, *args), kwargs)
            return wrapped(*args, **kwargs)

        return limited

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        _check_int_size(left, right)
        if operator == "*":
            for factor, sequence in ((left, right), (right, left)):
                if isinstance(factor, int) and not isinstance(sequence, int | float):
                    self.spend(max(factor, 0) * _length(sequence))
        elif operator == "**" and isinstance(left, int) and isinstance(right, int):
            if left.bit_length() * right > MAX_INT_BITS:
                raise SecurityError(
                    f"a number to the power of {short_repr(right)} is too large here"
                )
        elif operator == "%" and isinstance(left, str):
            self.spend_ahead("format", (left, right), {})
        result = super().call_binop(context, operator, left, right)
        self.spend(_length(result))
        return result

    def spend_ahead(
        self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[Any, ...]:
        """Charge in advance the calls that can make a huge value of small ones in one step.

        Returns the arguments to call with: of `join`, an iterator that charges each item.
        """
        values = [*args, *kwargs.values()]
        if name == "replace":
            lengths = [_length(value) for value in values[:3]]
            text, old, new = (*lengths, 0, 0, 0)[:3]
            self.spend((text // max(old, 1) + 1) * new)
        elif name == "format":
            template = str(values[0])
            if re.search(r"\d{4}|\*|\{[^}]*\{", template):
                raise SecurityError("a width in a format is too large, or is not a number")
            for _ in range(template.count("%") + template.count("{")):
                self.spend_contents(values[1:])
        elif name == "join":
            separator = values[1] if len(values) > 1 else ""
            return (self.count_join(args[0], separator), *args[1:])
        elif name in ("string", "tojson"):
            self.spend_contents(args[0])
            for value in values[1:]:
                _check_width(value)
        return args


def _check_width(number: object) -> None:
    if isinstance(number, int | float) and number > 1000:
        raise SecurityError(f"{short_repr(number)} is too large here")


def _length(value: object) -> int:
    """What a value costs by itself, without the values it contains."""
    if isinstance(value, int):
        return value.bit_length() // 8
    if isinstance(value, str | bytes | list | tuple | dict | set):
        return len(value)
    return 0
