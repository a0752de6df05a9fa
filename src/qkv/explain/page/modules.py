"""The page's script: ES modules put into one, in the order they need each other.

Each asset is a module that a browser could load by itself. In a single file there is nothing to
import from, so every module becomes a function that gives back what it exports; names within one
stay out of the others' way.
"""

import re
from functools import cache
from importlib.resources import files

ASSETS = files("qkv.explain.page") / "assets"
IMPORT = re.compile(r'^import (\{[^}]*\}) from "\./([a-z_]+)\.js";\n', re.MULTILINE)
EXPORT = re.compile(r"^export ((?:async )?function|class|const) (\w+)", re.MULTILINE)


@cache
def script(first: str = "main") -> str:
    """The module of this name, with everything it imports before it."""
    told: dict[str, str] = {}
    _tell(first, told)
    return "\n".join(told.values())


def asset(name: str) -> str:
    """A file of the page as it is."""
    return (ASSETS / name).read_text("utf-8")


def _tell(name: str, told: dict[str, str]) -> None:
    source = asset(f"{name}.js")
    for _, needed in IMPORT.findall(source):
        if needed not in told:
            _tell(needed, told)
    given = ", ".join(found[1] for found in EXPORT.findall(source))
    inside = EXPORT.sub(r"\1 \2", IMPORT.sub(r"const \1 = from_\2;\n", source))
    told[name] = f"const from_{name} = (() => {{\n{inside}\nreturn {{ {given} }};\n}})();\n"
