"""A tokenizer made of what a GGUF file says of its vocabulary."""

from collections.abc import Callable

from tokenizers import AddedToken, processors
from tokenizers import Tokenizer as Backend

from qkv.errors import BundleError
from qkv.files import shown
from qkv.gguf.byte_level import byte_backend, cut_of
from qkv.gguf.facts import Facts
from qkv.gguf.pieces import piece_backend
from qkv.gguf.vocabulary import PREFIX, Vocabulary, read_vocabulary
from qkv.text.sentencepiece import CONTROL, UNKNOWN, USER_DEFINED

MODELS: dict[str, Callable[[Facts, Vocabulary], Backend]] = {
    "llama": piece_backend,
    "gpt2": byte_backend,
}


def tokenizer_of(facts: Facts) -> Backend:
    """A tokenizer of the library, whose ids are the model's.

    Control tokens are special; with `add_special_tokens` the start and end tokens the file asks
    for are put around a text.
    """
    model = facts.text(f"{PREFIX}.model")
    if model not in MODELS:
        raise BundleError(
            f"{facts.path} has a tokenizer of the sort {shown(model)}; read are {', '.join(MODELS)}"
        )
    vocabulary = read_vocabulary(facts)
    try:
        backend = MODELS[model](facts, vocabulary)
        for sorts, special in ((UNKNOWN, CONTROL), True), ((USER_DEFINED,), False):
            tokens = vocabulary.of_sort(*sorts)
            backend.add_tokens(
                [AddedToken(token, special=special, normalized=False) for token in tokens if token]
            )
        _add_marks(backend, facts, vocabulary, starts=model == "llama" or cut_of(facts).starts)
    except BundleError:
        raise
    except Exception as error:  # the library knows no narrower one
        raise BundleError(
            f"{facts.path}: its vocabulary makes no tokenizer: {shown(str(error))}"
        ) from error
    return backend


def marks_of(facts: Facts) -> dict[str, str | None]:
    """The tokens that start, end, are unknown and pad, and the chat template; None if unsaid."""
    vocabulary = read_vocabulary(facts)
    marks: dict[str, str | None] = {
        mark: None if id is None else vocabulary.tokens[id] for mark, id in vocabulary.marks.items()
    }
    chat = "tokenizer.chat_template"
    return {**marks, "chat": facts.text(chat) if chat in facts else None}


def _add_marks(backend: Backend, facts: Facts, vocabulary: Vocabulary, starts: bool) -> None:
    wanted = {
        "start": facts.flag(f"{PREFIX}.add_bos_token", starts),
        "end": facts.flag(f"{PREFIX}.add_eos_token", False),
    }
    one, two, found = ["$A:0"], ["$B:1"], []
    for mark in (mark for mark in wanted if wanted[mark]):
        id = vocabulary.marks[mark]
        if id is None:
            raise BundleError(f"{facts.path} wants a {mark} token at each text but names none")
        # The template calls it by our word: a token may hold what a template would read as more.
        found.append({"id": mark, "ids": [id], "tokens": [vocabulary.tokens[id]]})
        at = 0 if mark == "start" else len(one)
        one.insert(at, f"{mark}:0")
        two.insert(at, f"{mark}:1")
    if found:
        backend.post_processor = processors.TemplateProcessing(one, one + two, found)
