"""Fill the generated parts of README and docs, or check that they are current.

    python tools/docs.py            writes them
    python tools/docs.py --check    lists the files that are out of date and exits 1

A generated part stands between two comments and is never edited by hand:

    <!-- shows: qkv explain --notes -->      what the command prints, at 80 columns
    <!-- source: qkv.attention.reference:softmax -->   the function as it stands in the code
    <!-- file: guide/poem.toml -->           the file
    <!-- presets -->                         the table of named models
    <!-- commands -->                        the help of every command
    <!-- layouts -->                         the public layouts that are read and written
    <!-- benches -->                         what the benches of speed have measured
    <!-- quality -->, <!-- resources -->     what the other benches have measured
    <!-- machine -->                         on which machine, with which versions
    <!-- config -->                          every choice of a recipe and its fields
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
    r"(<!-- (shows|source|file|presets|commands|layouts|benches|quality|resources|machine|config"
    r"|names|json)(?:: (.*?))? -->\n)"
    r".*?(<!-- end -->)",
    re.S,
)


def fill(page: str) -> str:
    """The page with every generated part made anew."""
    return PART.sub(lambda m: f"{m[1]}{MAKERS[m[2]](m[3])}\n{m[4]}", page)


def show(command: str) -> str:
    return f"```text\n$ {command}\n{run(command)}\n```"


def source(where: str) -> str:
    module, _, name = where.partition(":")
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
        spent = cost(config, length=256)
        family = config.kind.replace("_", "-")
        cache = f"{spent.cache_bytes:,} B" if spent.cache_bytes else "–"
        flops = f"{spent.forward_flops / 1e6:,.1f} MFLOP"
        rows.append(f"| `{name}` | {family} | {spent.parameters:,} | {flops} | {cache} |")
    return "\n".join(rows)


def commands(_: str | None) -> str:
    from qkv.cli.app import app

    named = [(command.name, command.callback) for command in app.registered_commands]
    names = [name or made.__name__ for name, made in named if made is not None]
    parts = [f"## qkv\n\n```text\n{run('qkv --help')}\n```"]
    parts += [f"## qkv {name}\n\n```text\n{run(f'qkv {name} --help')}\n```" for name in names]
    return "\n\n".join(parts)


def layouts(_: str | None) -> str:
    from qkv.checkpoints import FORMATS

    rows = ["| layout | `model_type` | classes |", "|---|---|---|"]
    for layout in FORMATS:
        kinds = ", ".join(f"`{kind}`" for kind in layout.model_types)
        classes = ", ".join(f"…{ending}" for ending in layout.class_suffixes)
        rows.append(f"| {layout.title} | {kinds} | {classes} |")
    return "\n".join(rows)


def file(path: str) -> str:
    content = (ROOT / "docs" / path).read_text("utf-8")
    return f"```{Path(path).suffix.removeprefix('.')}\n{content.rstrip()}\n```"


def run(command: str) -> str:
    """What the command prints, at 80 columns; a wrong answer (exit 1) is worth showing too."""
    from qkv.cli.app import main

    sys.argv = shlex.split(command)
    os.environ["COLUMNS"] = "80"
    printed, code = io.StringIO(), 0
    with contextlib.chdir(ROOT / "docs"), contextlib.redirect_stdout(printed):
        try:
            main()
        except SystemExit as ended:
            code = int(ended.code or 0)
    if code not in (0, 1):
        raise RuntimeError(f"{command} exited {code}")
    return printed.getvalue().rstrip()


def made_by(module: str, name: str) -> Callable[[str | None], str]:
    """A maker that stands in a file of its own beside this one."""

    def make(argument: str | None) -> str:
        maker = getattr(importlib.import_module(module), name)
        return maker() if argument is None else maker(argument)

    return make


MAKERS: dict[str, Callable[..., str]] = {
    "shows": show, "source": source, "presets": presets, "commands": commands, "layouts": layouts,
    "file": file,
    "benches": made_by("bench_table", "bench_table"),
    "quality": made_by("quality_tables", "quality_table"),
    "resources": made_by("quality_tables", "resource_table"),
    "machine": made_by("quality_tables", "machine_line"),
    "config": made_by("config_tables", "config_tables"),
    "names": made_by("name_lists", "name_lists"),
    "json": made_by("json_shapes", "shape"),
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
