"""Fill the generated parts of README and docs, or check that they are current.

    python tools/docs.py            writes them
    python tools/docs.py --check    lists the files that are out of date and exits 1

A generated part is between two comments and is never edited by hand:

    <!-- shows: qkv explain --notes -->      what the command prints, at 80 columns
    <!-- source: qkv.attention.reference:softmax -->   the function as it stands in the code
    <!-- file: guide/poem.toml -->           the file
    <!-- presets -->                         the table of named models
    <!-- commands -->                        the help of every command
    <!-- layouts -->                         the public checkpoint formats
    <!-- benches -->                         the results of the speed benchmarks
    <!-- busy -->                            default threads next to other programs
    <!-- quality -->, <!-- resources -->     the results of the other benchmarks
    <!-- machine -->                         the machine and the versions
    <!-- config -->                          every config of a recipe and its fields
    <!-- names -->                           the public Python names
    <!-- json: classify -->                  the shape of what a command prints with --json
    <!-- end -->
"""

import contextlib
import importlib
import inspect
import io
import os
import re
import shlex
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
PART = re.compile(
    r"(<!-- (shows|source|file|presets|commands|layouts|benches|busy|quality|resources|machine"
    r"|config|names|json)(?:: (.*?))? -->\n)"
    r".*?(<!-- end -->)",
    re.S,
)


def fill(page: str) -> str:
    """The page with every generated part regenerated."""
    return PART.sub(lambda m: f"{m[1]}{GENERATORS[m[2]](m[3])}\n{m[4]}", page)


def show(command: str) -> str:
    return f"```text\n$ {command}\n{run(command)}\n```"


def source(target: str) -> str:
    module, _, name = target.partition(":")
    thing: object = importlib.import_module(module)
    for part in name.split("."):  # a method by its class
        thing = inspect.getattr_static(thing, part)
    thing = inspect.unwrap(getattr(thing, "__func__", thing))  # type: ignore[arg-type]
    path = Path(inspect.getsourcefile(thing) or "").relative_to(ROOT).as_posix()
    code = textwrap.dedent(inspect.getsource(thing)).rstrip()
    return f"`{path}`\n\n```python\n{code}\n```"


def presets(_: str | None) -> str:
    from qkv.model import cost, preset
    from qkv.model import presets as names

    rows = ["| name | family | parameters | forward, a token at 256 | cache, a token |"]
    rows.append("|---|---|---:|---:|---:|")
    for name in names():
        config = preset(name)
        total = cost(config, length=256)
        family = config.kind.replace("_", "-")
        cache = f"{total.cache_bytes:,} B" if total.cache_bytes else "–"
        flops = f"{total.forward_flops / 1e6:,.1f} MFLOP"
        rows.append(f"| `{name}` | {family} | {total.parameters:,} | {flops} | {cache} |")
    return "\n".join(rows)


def commands(_: str | None) -> str:
    from qkv.cli.app import app

    names = [
        command.name or command.callback.__name__
        for command in app.registered_commands
        if command.callback is not None
    ]
    parts = [f"## qkv\n\n```text\n{run('qkv --help')}\n```"]
    parts += [f"## qkv {name}\n\n```text\n{run(f'qkv {name} --help')}\n```" for name in names]
    return "\n\n".join(parts)


def layouts(_: str | None) -> str:
    from qkv.checkpoints import FORMATS

    rows = ["| format | `model_type` | classes |", "|---|---|---|"]
    for format_ in FORMATS:
        kinds = ", ".join(f"`{kind}`" for kind in format_.model_types)
        classes = ", ".join(f"…{ending}" for ending in format_.class_suffixes)
        rows.append(f"| {format_.title} | {kinds} | {classes} |")
    return "\n".join(rows)


def file(path: str) -> str:
    content = (ROOT / "docs" / path).read_text("utf-8")
    return f"```{Path(path).suffix.removeprefix('.')}\n{content.rstrip()}\n```"


def run(command: str) -> str:
    """The output of the command at 80 columns; a failed check (exit 1) is worth showing too."""
    from qkv.cli.app import main

    sys.argv = shlex.split(command)
    os.environ["COLUMNS"] = "80"
    stdout = io.StringIO()
    code = 0
    with contextlib.chdir(ROOT / "docs"), contextlib.redirect_stdout(stdout):
        try:
            main()
        except SystemExit as exit_:
            code = int(exit_.code or 0)
    if code not in (0, 1):
        raise RuntimeError(f"{command} exited {code}")
    return stdout.getvalue().rstrip()


def imported(module: str, name: str) -> Callable[[str | None], str]:
    """A generator that is defined in another file of this folder, imported when it is called."""

    def generate(argument: str | None) -> str:
        generator = getattr(importlib.import_module(module), name)
        return generator() if argument is None else generator(argument)

    return generate


GENERATORS: dict[str, Callable[..., str]] = {
    "shows": show, "source": source, "presets": presets, "commands": commands, "layouts": layouts,
    "file": file,
    "benches": imported("bench_table", "bench_table"),
    "busy": imported("bench_table", "busy_table"),
    "quality": imported("quality_tables", "quality_table"),
    "resources": imported("quality_tables", "resource_table"),
    "machine": imported("quality_tables", "machine_line"),
    "config": imported("config_tables", "config_tables"),
    "names": imported("name_lists", "name_lists"),
    "json": imported("json_shapes", "shape"),
}  # fmt: skip


def stale() -> list[Path]:
    return [page for page in PAGES if fill(page.read_text("utf-8")) != page.read_text("utf-8")]


if __name__ == "__main__":
    from pictures import draw_all

    if "--check" in sys.argv[1:]:
        out_of_date = stale()
        for page in out_of_date:
            print(f"{page.relative_to(ROOT)} is out of date; run: make docs")
        sys.exit(bool(out_of_date))
    draw_all()
    for page in PAGES:
        page.write_text(fill(page.read_text("utf-8")), "utf-8")
