"""Pages made of the assets: one file with its style, script and data inside.

A content security policy names the page's own script and style by their hashes and forbids
everything else, so no markup that slipped in could act, and nothing can reach a network.
"""

import base64
import hashlib
import json
import re
from functools import cache
from importlib.resources import files
from string import Template
from typing import Any

ASSETS = files("qkv.interpret.page") / "assets"
IMPORT = re.compile(r'^import (\{[^}]*\}) from "\./([a-z_]+)\.js";\n', re.MULTILINE)
EXPORT = re.compile(r"^export ((?:async )?function|class|const) (\w+)", re.MULTILINE)


def fill_template(template: str, script: str, data: dict[str, Any], **markup: str) -> str:
    """The HTML document: the template with the script module of this name, its data and markup.

    markup: HTML for the other placeholders of the template; the caller escapes it.
    """
    style = _read_asset("page.css")
    code = bundle_script(script)
    return Template(_read_asset(template)).substitute(
        policy=_content_security_policy(style, code),
        style=style,
        data=_script_json(data),
        script=code,
        **markup,
    )


@cache
def bundle_script(entry: str) -> str:
    """The module `entry` and all it imports, as one script without imports.

    Each asset is an ES module that a browser could load by itself. In a single file there is
    nothing to import from, so every module becomes a function that returns what it exports, and
    names that are not exported stay local to it.
    """
    modules: dict[str, str] = {}
    _add_module(entry, modules)
    return "\n".join(modules.values())


def _add_module(name: str, modules: dict[str, str]) -> None:
    """Add a module after those it imports."""
    source = _read_asset(f"{name}.js")
    for _, imported in IMPORT.findall(source):
        if imported not in modules:
            _add_module(imported, modules)
    exports = ", ".join(match[1] for match in EXPORT.findall(source))
    body = EXPORT.sub(r"\1 \2", IMPORT.sub(r"const \1 = from_\2;\n", source))
    modules[name] = f"const from_{name} = (() => {{\n{body}\nreturn {{ {exports} }};\n}})();\n"


def _read_asset(name: str) -> str:
    return (ASSETS / name).read_text("utf-8")


def _content_security_policy(style: str, script: str) -> str:
    return (
        f"default-src 'none'; script-src {_sha256(script)}; style-src {_sha256(style)}; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )


def _sha256(text: str) -> str:
    """The hash of an inline element; the templates have a line break before its content."""
    digest = hashlib.sha256(f"\n{text}".encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


def _script_json(payload: dict[str, Any]) -> str:
    """JSON in ASCII in which nothing looks like markup."""
    # </script> in a token would end the element, so < and > are escaped as JSON allows.
    text = json.dumps(payload, allow_nan=False, separators=(",", ":"))
    return text.replace("<", r"\u003c").replace(">", r"\u003e").replace("&", r"\u0026")
