"""Where a template runs: Jinja's sandbox, with a limit to the work it may do.

The sandbox keeps a template away from Python's insides, and a `range` short. It does not stop
`"a" * 10**12`, a text that doubles itself in a loop, or loops inside loops. So here every turn of
a loop, call, filter and operator costs a step, every text made costs its length, no whole number
may be long, and methods and filters are those that real templates use. What is left: comparing
lists that hold one another many times over is not counted, and a step once begun is not broken off.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import wraps
from typing import Any

from jinja2 import TemplateError
from jinja2.exceptions import SecurityError
from jinja2.ext import loopcontrols
from jinja2.runtime import Context, Undefined
from jinja2.sandbox import ImmutableSandboxedEnvironment

from qkv.files import shown
from qkv.text.template import (
    BITS,
    FILTERS,
    METHODS,
    Counted,
    Dict,
    Generation,
    Plain,
    refuse_long,
)

__all__ = ["Sandbox", "TemplateError"]

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
