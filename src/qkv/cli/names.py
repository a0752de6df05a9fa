"""The names that options take, written here so that a shell can complete them in no time.

What they name is in packages that take a second to import; a test holds the two together.
"""

from collections.abc import Callable, Sequence

JOBS = ("language", "masked", "classify", "translate", "embed")
CORPORA = ("language", "classify", "translate", "embed")
SIZES = ("tiny", "small", "medium")
PUBLISHED = (
    "paper-base", "paper-big", "bert-base", "minilm-l6", "gpt2", "t5-small", "llama-15m",
    "smollm-135m",
)  # fmt: skip
PRESETS = (*PUBLISHED, *(f"{job}-{size}" for job in JOBS for size in SIZES))
TOKENIZERS = ("bpe", "wordpiece", "unigram", "characters", "bytes")
OPTIMISERS = ("muon", "adamw")
DEVICES = ("auto", "cpu", "cuda", "mps")
LONG = ("error", "truncate", "average")
LONG_TRANSLATIONS = ("error", "sentences")
EXAMPLES = ("poem", "same", "cross", "heads", "factored")
FORMATS = ("hf",)

Completion = Callable[[str], list[str]]


def one_of(names: Sequence[str]) -> Completion:
    """What typer asks when the tabulator is pressed: the names that begin with what is typed."""

    def complete(incomplete: str) -> list[str]:
        return [name for name in names if name.startswith(incomplete)]

    return complete


def either(names: Sequence[str]) -> str:
    """All of them, as help says it: "a, b or c"."""
    return f"{', '.join(names[:-1])} or {names[-1]}"
