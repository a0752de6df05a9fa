"""The grammars that an answer can be held to: JSON schema, any JSON, regex, Lark; by llguidance.

This is the front's half, which refuses a grammar that cannot be held to; `grammar_mask` is the
engine's.
"""

from typing import Any

from llguidance import LLMatcher

from qkv.errors import UsageError

MAX_GRAMMAR_CHARACTERS = 65_536
# Room to indent, and no more: a weak model that may write any number of spaces never ends.
JSON_OPTIONS: Any = {"whitespace_pattern": r"\n? {0,8}"}


def compile_grammar(kind: str, source: Any) -> str:
    """A grammar of llguidance for a JSON schema, any JSON object, a regex or a Lark grammar.

    Raises a UsageError if the library cannot hold a text to it.
    """
    try:
        if kind == "json_schema":
            grammar = LLMatcher.grammar_from_json_schema(source, overrides=JSON_OPTIONS)
        elif kind == "json_object":
            schema = {"type": "object"}
            grammar = LLMatcher.grammar_from_json_schema(schema, overrides=JSON_OPTIONS)
        elif kind == "regex":
            grammar = LLMatcher.grammar_from_regex(source)
        else:
            grammar = LLMatcher.grammar_from_lark(source)
    except (ValueError, TypeError) as error:
        raise UsageError(f"the {kind.replace('_', ' ')} cannot be used: {error}") from error
    if len(grammar) > MAX_GRAMMAR_CHARACTERS:
        raise UsageError(
            f"the grammar has {len(grammar):,} characters; at most {MAX_GRAMMAR_CHARACTERS:,}"
        )
    problem = LLMatcher.validate_grammar(grammar)
    if problem:
        raise UsageError(f"the {kind.replace('_', ' ')} cannot be used: {problem}")
    return str(grammar)
