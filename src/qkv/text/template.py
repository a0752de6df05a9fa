"""What a chat template may use: the filters, methods, tags and functions real templates use."""

from __future__ import annotations

from typing import Any

from jinja2 import nodes
from jinja2.compiler import CodeGenerator, Frame
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.utils import Namespace

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
