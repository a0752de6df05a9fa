"""The options that `qkv train` and `qkv plan` share, and what they ask for together."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from qkv.errors import UsageError

if TYPE_CHECKING:
    from qkv.train.plan import Wish

option = typer.Option

Job = Annotated[str, typer.Argument(help="language, masked, classify, translate or embed.")]
Files = Annotated[
    list[Path] | None, typer.Argument(help="Files; none: a built-in corpus for the job.")
]
Size = Annotated[str | None, option(show_default="small", help="tiny, small or medium.")]
Preset = Annotated[str | None, option(help="A named model instead of a size.")]
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
Tokenizer = Annotated[str | None, option(help="bpe, wordpiece, unigram, characters or bytes.")]
Vocabulary = Annotated[int | None, option(min=6, help="The most tokens the tokenizer may have.")]
Context = Annotated[
    int | None, option("--context", min=2, help="How many tokens the model sees at once.")
]
Batch = Annotated[int | None, option(min=1, help="Tokens a step, padding included.")]
Optimiser = Annotated[str | None, option(help="muon or adamw.")]
Seed = Annotated[int | None, option(min=0, show_default="0", help="Same seed, same weights.")]
Compile = Annotated[bool, option("--compile", help="Faster steps after a slow start.")]
Threads = Annotated[int | None, option(min=1, help="Cores to use.")]
Device = Annotated[str, option(help="auto, cpu, cuda or mps.")]


def make_wish(
    *,
    job: str,
    files: list[Path] | None,
    config: Path | None,
    assignments: list[str] | None,
    validation: list[Path] | None,
    text: str | None,
    label: str | None,
    source: str | None,
    target: str | None,
    score: str | None,
    seed: int | None,
    compiled: bool,
    **others: Any,
) -> "Wish":
    """All of them as one wish: --config, over it the options, and over those --set."""
    from qkv.train.plan import Wish
    from qkv.train.recipe import Data, read_toml
    from qkv.train.settings import laid_over, read_settings

    settings: dict[str, Any] = {}
    if config is not None:
        try:
            settings = read_toml(config.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"cannot read {config}: {error}") from None
    parallel = not files and source is not None and target is not None
    said: dict[str, Any] = {
        "files": tuple(str(path.absolute()) for path in files or ()),
        "validation": tuple(str(path.absolute()) for path in validation or ()),
        "text": text,
        "label": label,
        "source": str(Path(source).absolute()) if parallel and source else source,
        "target": str(Path(target).absolute()) if parallel and target else target,
        "score": score,
    }
    data = {name: value for name, value in said.items() if value}
    if config is not None:
        if data:
            settings.get("data", {}).pop("sha256", None)  # that of other data
        settings = laid_over(settings, _options(data, seed, compiled, **others))
    settings = laid_over(settings, read_settings(assignments or []))
    wish = Wish(job=job, data=Data(**data), settings=settings, compile=compiled, **others)
    return wish if seed is None else replace(wish, seed=seed)


def _options(
    data: dict[str, Any], seed: int | None, compiled: bool, **others: Any
) -> dict[str, Any]:
    """What was asked for by options, as settings to be laid over those of a file."""
    asked = {
        "seed": seed,
        "compile": compiled or None,
        "steps": others["steps"],
        "batch": others["batch"],
        "data": data or None,
        "model": {"length": others["context"]} if others["context"] else None,
        "optimiser": {"kind": others["optimiser"]} if others["optimiser"] else None,
    }
    return {name: value for name, value in asked.items() if value is not None}
