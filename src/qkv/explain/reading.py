"""A text as a model reads it, position by position, with names people can read."""

from collections.abc import Sequence

from qkv.engine.cluster.words import tokens_of_words
from qkv.engine.generate.prompting import Prompter
from qkv.engine.translate.marking import Marking
from qkv.engine.translate.words import written_spans
from qkv.errors import UsageError
from qkv.explain.trace import Reading
from qkv.model import (
    Classify,
    Decoder,
    Encoder,
    EncoderOnly,
    Model,
    NextToken,
    TextVector,
    Translator,
)
from qkv.text import Tokenizer


def read_text(model: Model, tokenizer: Tokenizer, text: str, target: str | None = None) -> Reading:
    """The ids, their names and their words, with the marks the model was trained with.

    target: for an encoder–decoder, how far the other text has come; its marks are put around it.
    """
    if isinstance(model, Translator):
        return _pair(model, tokenizer, text, target or "")
    if target is not None:
        raise UsageError("only an encoder–decoder has a target; leave it out")
    if isinstance(model, Decoder) and isinstance(model.config.output, NextToken):
        ids = Prompter(model, tokenizer).ids(text)
        before, after = len(ids) - len(tokenizer.encode(text)), 0
    else:
        assert isinstance(model, Encoder | Decoder)
        ids = tokenizer.wrap(tokenizer.encode(text))
        before, after = len(tokenizer.before), len(tokenizer.after)
    config = model.config
    most = config.reads if isinstance(config, EncoderOnly) else config.length
    _expect_room(len(ids), most, "text")
    names, words = _named(tokenizer, text, ids, before, after)
    return Reading({"text": ids}, {"text": names}, {"text": words}, _outputs(model, tokenizer))


def _pair(model: Translator, tokenizer: Tokenizer, source: str, target: str) -> Reading:
    marking, most = Marking.of(tokenizer, model.config), model.config.length
    ids = {
        "source": marking.source(tokenizer.encode(source)),
        "target": [*marking.start, *tokenizer.encode(target, target=True)],
    }
    around = {
        "source": (source, len(marking.before), len(marking.after)),
        "target": (target, len(marking.start), 0),
    }
    for sequence, row in ids.items():
        _expect_room(len(row), most, sequence)
    found = {
        name: _named(tokenizer, text, ids[name], before, after, target=name == "target")
        for name, (text, before, after) in around.items()
    }
    tokens, words = ({name: each[i] for name, each in found.items()} for i in (0, 1))
    return Reading(ids, tokens, words, _outputs(model, tokenizer))  # type: ignore[arg-type]


def _outputs(model: Model, tokenizer: Tokenizer) -> tuple[str, ...]:
    """What each number of the answer is called: a label, a token, or nothing."""
    output = model.config.output
    if isinstance(output, Classify):
        return output.labels
    if isinstance(output, TextVector):
        return ()
    return tuple(tokenizer.token(id) for id in range(tokenizer.size))


def _named(
    tokenizer: Tokenizer,
    text: str,
    ids: Sequence[int],
    before: int,
    after: int,
    target: bool = False,
) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """What stands at each position, and the number of its word; −1 for a mark."""
    names = [tokenizer.token(id) for id in ids]
    words = [-1] * len(ids)
    inside = range(before, len(ids) - after)
    if target and tokenizer.two_languages:  # cut in another way than a source
        spans = written_spans(tokenizer, [ids[at] for at in inside], text)
    else:
        spans = tokenizer.offsets(text) if len(inside) else []
    if len(spans) == len(inside):  # else the pieces of a text say nothing of its characters
        for at, (start, end) in zip(inside, spans, strict=True):
            names[at] = _shown(text[start:end]) or names[at]
        for number, (_, tokens) in enumerate(tokens_of_words(text, spans)):
            for at in tokens:
                words[before + at] = number
    return tuple(names), tuple(words)


def _shown(piece: str) -> str:
    """A piece of text on one line, its spaces visible if there is nothing else."""
    return piece.strip() or piece.replace(" ", "␣").replace("\n", "↵").replace("\t", "⇥")


def _expect_room(length: int, most: int, what: str) -> None:
    if not length:
        raise UsageError(f"the {what} is empty: there is nothing to look at")
    if length > most:
        raise UsageError(
            f"the {what} has {length} tokens but the model reads at most {most}; shorten it"
        )
