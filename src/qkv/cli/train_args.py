"""The options that `qkv train` and `qkv plan` share, as the keywords of `qkv.train`."""

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import wraps
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import Annotated, Any

import typer

from qkv.cli.options import (
    DEVICES,
    JOBS,
    OPTIMIZERS,
    PRESETS,
    SIZES,
    TOKENIZERS,
    complete_from,
    join_or,
    mutually_exclusive,
)
from qkv.errors import QkvError

option = typer.Option
Options = Mapping[str, Any]  # the value of each shared option, by the name of its parameter

Job = Annotated[
    str | None,
    typer.Argument(help=f"{join_or(JOBS)}.", autocompletion=complete_from(JOBS)),
]
Files = Annotated[
    list[Path] | None, typer.Argument(help="Files; none: a built-in corpus for the job.")
]
Size = Annotated[
    str | None,
    option(show_default="small", help=f"{join_or(SIZES)}.", autocompletion=complete_from(SIZES)),
]
Preset = Annotated[
    str | None,
    option(help="A named model instead of a size.", autocompletion=complete_from(PRESETS)),
]
ConfigFile = Annotated[Path | None, option(help="Settings in a TOML file, such as a recipe.toml.")]
Set = Annotated[
    list[str] | None, option("--set", help="One setting, as in model.width=256; repeatable.")
]
Steps = Annotated[int | None, option(min=1, help="How many steps.")]
Epochs = Annotated[float | None, option(min=0.01, help="How many passes over the examples.")]
Tokens = Annotated[int | None, option(min=1, help="How many tokens to read in all.")]
Minutes = Annotated[
    float | None, option(min=0.01, help="How long at most, evaluations and report included.")
]
From = Annotated[Path | None, option("--from", help="Fine-tune the model in this directory.")]
Freeze = Annotated[
    bool, option("--freeze", help="With --from: train only a small network on its embeddings.")
]
Text = Annotated[str | None, option(help="Column of the texts, by name or number from 1.")]
Label = Annotated[str | None, option(help="Column of the labels.")]
Source = Annotated[str | None, option(help="Column of the sources; or, without files, their file.")]
Target = Annotated[str | None, option(help="Column of the targets; or, without files, their file.")]
Score = Annotated[str | None, option(help="Column of the similarity score of a pair.")]
SkipBad = Annotated[
    bool, option("--skip-bad", help="Leave out rows that cannot be used, and list them.")
]
Validation = Annotated[
    list[Path] | None,
    option(help="Files to validate with, instead of a part of the data; repeatable."),
]
Tokenizer = Annotated[
    str | None, option(help=f"{join_or(TOKENIZERS)}.", autocompletion=complete_from(TOKENIZERS))
]
Vocabulary = Annotated[int | None, option(min=6, help="Maximum size of the vocabulary.")]
Context = Annotated[
    int | None, option("--context", min=2, help="Context length of the model, in tokens.")
]
Batch = Annotated[int | None, option(min=1, help="Tokens per step, padding included.")]
Optimizer = Annotated[
    str | None,
    option(
        "--optimizer",
        help=f"{join_or(OPTIMIZERS)}.",
        autocompletion=complete_from(OPTIMIZERS),
    ),
]
OldOptimizer = Annotated[
    str | None,
    option(
        "--optimiser",
        hidden=True,
        help="The old spelling of --optimizer.",
        autocompletion=complete_from(OPTIMIZERS),
    ),
]
Seed = Annotated[int | None, option(min=0, show_default="0", help="Same seed, same weights.")]
Compile = Annotated[
    bool, option("--compile", help="Faster steps with kernels compiled once for this machine.")
]
Threads = Annotated[int | None, option(min=1, help="Cores to use.")]
Device = Annotated[str, option(help=f"{join_or(DEVICES)}.", autocompletion=complete_from(DEVICES))]


def _shared(
    job: Job = None,
    data: Files = None,
    size: Size = None,
    preset: Preset = None,
    config: ConfigFile = None,
    set_: Set = None,
    steps: Steps = None,
    epochs: Epochs = None,
    tokens: Tokens = None,
    minutes: Minutes = None,
    from_: From = None,
    freeze: Freeze = False,
    text: Text = None,
    label: Label = None,
    source: Source = None,
    target: Target = None,
    score: Score = None,
    skip_bad: SkipBad = False,
    validation: Validation = None,
    tokenizer: Tokenizer = None,
    vocabulary: Vocabulary = None,
    context_length: Context = None,
    batch: Batch = None,
    optimizer: Optimizer = None,
    optimiser: OldOptimizer = None,
    seed: Seed = None,
    compile_: Compile = False,
    threads: Threads = None,
    device: Device = "auto",
) -> None:
    """The arguments and options themselves, written down once."""


def with_train_options(command: Callable[..., None]) -> Callable[..., None]:
    """The command with all shared options next to its own; it gets them in `options`."""
    own = dict(signature(command).parameters)
    shared = dict(signature(_shared).parameters)
    del own["options"]

    @wraps(command)
    def wrapper(**values: Any) -> None:
        options = {name: values.pop(name) for name in shared}
        mutually_exclusive(
            {f"--{name}": options[name] for name in ("steps", "epochs", "tokens", "minutes")}
        )
        with flags_in_errors():
            command(options=options, **values)

    parameters = [*own.values(), *shared.values()]
    keyword_only = [p.replace(kind=Parameter.KEYWORD_ONLY) for p in parameters]
    wrapper.__signature__ = Signature(keyword_only)  # type: ignore[attr-defined]
    wrapper.__annotations__ = {**command.__annotations__, **_shared.__annotations__}
    return wrapper


def train_keywords(options: Options) -> dict[str, Any]:
    """The options as keywords of `qkv.train` and `qkv.training.launch.train_args`."""
    from qkv.training import read_settings

    keywords = dict(options)
    keywords["data"] = options["data"] or ()
    keywords["validation"] = options["validation"] or ()
    keywords["settings"] = read_settings(keywords.pop("set_") or ())
    keywords["vocab_size"] = keywords.pop("vocabulary")
    keywords["compile"] = keywords.pop("compile_")
    keywords["optimizer"] = keywords.pop("optimiser") or options["optimizer"]
    return keywords


# Python arguments whose flag is not their own name.
FLAGS = {
    "from_": "--from",
    "context_length": "--context",
    "skip_bad": "--skip-bad",
    "vocab_size": "--vocabulary",
}
SAME_NAME = (
    "batch|epochs|finish|freeze|label|minutes|optimizer|preset|resume|score|size|source|steps|target|text"
    "|tokenizer|tokens|validation"
)
NAMES = "|".join((*FLAGS, SAME_NAME))
VALUE = r"""'[^']*'|"[^"]*"|\w+"""
ARGUMENT = re.compile(rf"(?<![\w.-])(?:({NAMES})=({VALUE})?|(from_))")


@contextmanager
def flags_in_errors() -> Iterator[None]:
    """Inside, errors of the library name flags: `freeze=True` becomes `--freeze`."""
    try:
        yield
    except QkvError as error:
        error.args = (ARGUMENT.sub(_as_flag, str(error)), *error.args[1:])
        raise


def _as_flag(argument: re.Match[str]) -> str:
    name, value, bare = argument.groups()
    if bare:
        return FLAGS[bare]
    flag = FLAGS.get(name, f"--{name}")
    if value is None:
        return flag
    if value[0] == '"':
        return f"{flag} {value[1:-1]}"
    # Numbers and placeholders such as FILE; other values are in the rest of the message.
    if value.isdigit() or value.isupper():
        return f"{flag} {value}"
    return flag
