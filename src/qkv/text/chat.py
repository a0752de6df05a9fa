"""A conversation as one text, by the template that came with the model.

A template is a program (in Jinja) written by whoever published the model. It runs in Jinja's
sandbox, which gives it no way to Python itself, and on an allowance: so many steps, and so many
characters made on the way. What it cannot do is harm; what it can still do is use up its
allowance, which takes some seconds at worst.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from qkv.errors import DataError
from qkv.files import one_line

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
    from qkv.text.sandbox import Sandbox, TemplateError

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
