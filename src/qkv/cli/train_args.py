"""The options that `qkv train` and `qkv plan` share, and what they ask for together."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import wraps
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from qkv.cli.options import (
    DEVICES,
    JOBS,
    OPTIMISERS,
    PRESETS,
    SIZES,
    TOKENIZERS,
    either,
    one_of,
    only_one,
)
from qkv.errors import TrainingError, UsageError

if TYPE_CHECKING:
    import torch

    from qkv.training.plan import TrainArgs

option = typer.Option
Asked = Mapping[str, Any]  # what was given for each shared option, by its name

Job = Annotated[str, typer.Argument(help=f"{either(JOBS)}.", autocompletion=one_of(JOBS))]
Files = Annotated[
    list[Path] | None, typer.Argument(help="Files; none: a built-in corpus for the job.")
]
Size = Annotated[
    str | None,
    option(show_default="small", help=f"{either(SIZES)}.", autocompletion=one_of(SIZES)),
]
Preset = Annotated[
    str | None, option(help="A named model instead of a size.", autocompletion=one_of(PRESETS))
]
Config = Annotated[Path | None, option(help="Settings in a TOML file, such as a recipe.toml.")]
Set = Annotated[
    list[str] | None, option("--set", help="One setting, as in model.width=256; repeatable.")
]
Steps = Annotated[int | None, option(min=1, help="How many steps.")]
Epochs = Annotated[float | None, option(min=0.01, help="How often all examples are read.")]
Tokens = Annotated[int | None, option(min=1, help="How many tokens are read in all.")]
Minutes = Annotated[float | None, option(min=0.01, help="About how long, measured at the start.")]
From = Annotated[Path | None, option("--from", help="Train the model in this directory further.")]
Freeze = Annotated[
    bool, option("--freeze", help="With --from: only a small network on its embeddings learns.")
]
Text = Annotated[str | None, option(help="Column of the texts, by name or number from 1.")]
Label = Annotated[str | None, option(help="Column of the labels.")]
Source = Annotated[str | None, option(help="Column of the sources; or, without files, their file.")]
Target = Annotated[str | None, option(help="Column of the targets; or, without files, their file.")]
Score = Annotated[str | None, option(help="Column of how alike the two texts of a pair are.")]
Validation = Annotated[
    list[Path] | None, option(help="Files to measure with, instead of a part held out; repeatable.")
]
Tokenizer = Annotated[
    str | None, option(help=f"{either(TOKENIZERS)}.", autocompletion=one_of(TOKENIZERS))
]
Vocabulary = Annotated[int | None, option(min=6, help="The most tokens the tokenizer may have.")]
Context = Annotated[
    int | None, option("--context", min=2, help="How many tokens the model sees at once.")
]
Batch = Annotated[int | None, option(min=1, help="Tokens a step, padding included.")]
Optimizer = Annotated[
    str | None,
    option(
        "--optimizer",
        "--optimizer",
        help=f"{either(OPTIMISERS)}.",
        autocompletion=one_of(OPTIMISERS),
    ),
]
Seed = Annotated[int | None, option(min=0, show_default="0", help="Same seed, same weights.")]
Compile = Annotated[
    bool, option("--compile", help="Quicker steps by loops compiled once for this machine.")
]
Threads = Annotated[int | None, option(min=1, help="Cores to use.")]
Device = Annotated[str, option(help=f"{either(DEVICES)}.", autocompletion=one_of(DEVICES))]


def _shared(
    job: Job,
    data: Files = None,
    size: Size = None,
    preset: Preset = None,
    config: Config = None,
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
    validation: Validation = None,
    tokenizer: Tokenizer = None,
    vocabulary: Vocabulary = None,
    context_length: Context = None,
    batch: Batch = None,
    optimizer: Optimizer = None,
    seed: Seed = None,
    compile_: Compile = False,
    threads: Threads = None,
    device: Device = "auto",
) -> None:
    """The arguments and options themselves, written down once."""


def with_train_options(command: Callable[..., None]) -> Callable[..., None]:
    """The command with all shared options besides its own; it gets them by name in `asked`."""
    own, shared = (dict(signature(f).parameters) for f in (command, _shared))
    del own["asked"]

    @wraps(command)
    def called(**given: Any) -> None:
        asked = {name: given.pop(name) for name in shared}
        only_one({f"--{name}": asked[name] for name in ("steps", "epochs", "tokens", "minutes")})
        command(asked=asked, **given)

    named = (p.replace(kind=Parameter.KEYWORD_ONLY) for p in (*own.values(), *shared.values()))
    called.__signature__ = Signature(list(named))  # type: ignore[attr-defined]
    called.__annotations__ = {**command.__annotations__, **_shared.__annotations__}
    return called


def begin(asked: Asked) -> "torch.device":
    """Set the number of threads, and say where to compute."""
    import torch

    from qkv.device import resolve_device

    if asked["threads"] is not None:
        torch.set_num_threads(asked["threads"])
    return resolve_device(asked["device"])


def make_args(asked: Asked) -> "TrainArgs":
    """All of it as one args: --config, over it the options, and over those --set."""
    from qkv.training.plan import TrainArgs
    from qkv.training.recipe import Data, laid_over, read_settings

    settings, data = _file_settings(asked["config"]), _data(asked)
    if asked["config"] is not None:
        if data:
            settings.get("data", {}).pop("sha256", None)  # that of other data
        settings = laid_over(settings, _options(asked, data))
    settings = laid_over(settings, read_settings(asked["set_"] or []))
    same = (
        "job", "size", "preset", "steps", "epochs", "tokens", "tokenizer", "vocabulary", "batch",
        "optimizer", "freeze",
    )  # fmt: skip
    args = TrainArgs(
        **{name: asked[name] for name in same},
        data=Data(**data),
        origin=asked["from_"],
        context=asked["context_length"],
        compile=asked["compile_"],
        settings=settings,
    )
    return args if asked["seed"] is None else replace(args, seed=asked["seed"])


def _file_settings(config: Path | None) -> dict[str, Any]:
    from qkv.files import read_text
    from qkv.files.safe_io import suggest_path
    from qkv.training.recipe import read_toml

    if config is None:
        return {}
    if not config.exists():
        raise UsageError(f"cannot read {config}: there is no such file{suggest_path(config)}")
    try:
        return read_toml(read_text(config, UsageError, follow_symlinks=True))
    except TrainingError as error:
        raise UsageError(f"{config}: {error}") from None


def _data(asked: Asked) -> dict[str, Any]:
    """What is said of the data; names of files are made whole, so that a recipe can be moved."""
    source, target = asked["source"], asked["target"]
    if not asked["data"] and source is not None and target is not None:  # parallel files
        source, target = (str(Path(side).absolute()) for side in (source, target))
    said = {
        "files": tuple(str(path.absolute()) for path in asked["data"] or ()),
        "validation": tuple(str(path.absolute()) for path in asked["validation"] or ()),
        "text": asked["text"],
        "label": asked["label"],
        "source": source,
        "target": target,
        "score": asked["score"],
    }
    return {name: value for name, value in said.items() if value}


def _options(asked: Asked, data: dict[str, Any]) -> dict[str, Any]:
    """What was asked for by options, as settings to be laid over those of a file."""
    length, optimizer = asked["context_length"], asked["optimizer"]
    said = {
        "seed": asked["seed"],
        "compile": asked["compile_"] or None,
        "steps": asked["steps"],
        "batch": asked["batch"],
        "data": data or None,
        "model": {"length": length} if length else None,
        "optimizer": {"kind": optimizer} if optimizer else None,
    }
    return {name: value for name, value in said.items() if value is not None}
