"""`qkv explain TEXT --model DIR`: the walk, the answer and its reasons, for any model."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from qkv.cli.progress import print_stderr
from qkv.errors import UsageError

if TYPE_CHECKING:
    from qkv.interpret.glass_box import GlassBox
    from qkv.interpret.trace import Edit

if TYPE_CHECKING:
    from qkv.interpret.attribution.attribute import Attribution
    from qkv.interpret.head_walk import HeadLocation
    from qkv.interpret.trace import Trace

if TYPE_CHECKING:
    from qkv.interpret.attribution.attribute import Attribution
    from qkv.interpret.glass_box import GlassBox
    from qkv.interpret.head_walk import HeadLocation
    from qkv.interpret.trace import Trace

# FOLDED cli/explain_wish: What is to be shown of a model: the options of `qkv explain --model`,
#   and the edits they name.
# FOLDED cli/explain_files: `qkv explain … -o FILE`: a page, a picture, a trace, or one value,
#   by the file's ending.


@dataclass(frozen=True)
class Wish:
    """What is to be shown of a model."""

    model: Path
    text: str
    target: str | None
    layer: int | None
    head: int | None
    cross: bool
    side: str
    steps: tuple[str, ...]
    cell: tuple[str, str] | None
    top: int
    precision: int
    format: str
    why: bool
    label: str | None
    token: str | None
    against: str | None
    no_scale: bool
    no_mask: bool
    no_position: bool
    heads_off: tuple[str, ...]
    replaced: tuple[str, ...]
    output: Path | None
    tensor: str | None
    width: int


def edits_of(box: "GlassBox", wish: Wish) -> list["Edit"]:
    """What is changed, in the order of the options."""
    from qkv.interpret.trace import NoMask, NoPosition, NoScale

    kinds = {NoScale: wish.no_scale, NoMask: wish.no_mask, NoPosition: wish.no_position}
    found: list[Edit] = [kind() for kind, asked in kinds.items() if asked]
    found += [_head_off(box, wish, written) for written in wish.heads_off]
    return found + [_replaced(box, written) for written in wish.replaced]


def _head_off(box: "GlassBox", wish: Wish, written: str) -> "Edit":
    from qkv.interpret.trace import AblateHead

    layer, dot, head = written.partition(".")
    if not (dot and layer.isdecimal() and head.isdecimal()):
        raise UsageError(f"--head-off {written} should be LAYER.HEAD, as in 0.3")
    stack = wish.side or ("decoder" if hasattr(box.model.config, "decoder") else "encoder")
    return AblateHead(stack, int(layer), int(head), "cross" if wish.cross else "attention")


def _replaced(box: "GlassBox", written: str) -> "Edit":
    from qkv.interpret.trace import ReplaceToken
    from qkv.model import Translator

    position, equals, token = written.partition("=")
    if not equals or not position.removeprefix("-").isdecimal():
        raise UsageError(f"--replace {written} should be POSITION=TOKEN, as in 2=cat")
    ids = box.tokenizer.encode(token)
    if len(ids) != 1:
        raise UsageError(
            f"--replace puts one token in the place of another, but “{token}” is {len(ids)}; "
            "explain the changed text instead"
        )
    if isinstance(box.model, Translator):
        sequence = "source"
    else:
        sequence = "text"
    return ReplaceToken(int(position), ids[0], token, sequence)


PICTURES = (".png", ".svg", ".pdf")
TABLES = (".csv", ".npy", ".md", ".tex")


def check_output(wish: Wish) -> None:
    """What can be told before anything is computed."""
    if wish.output is None:
        return
    ending = wish.output.suffix.lower()
    known = (".html", ".safetensors", *PICTURES, *TABLES)
    if ending not in known:
        raise UsageError(
            f'cannot write "{wish.output.name}"; end it with one of {", ".join(known)}'
        )
    if ending in TABLES and wish.tensor is None:
        raise UsageError(
            f"{ending} holds one value; name it with --tensor, as in "
            "--tensor decoder.0.attention.weights"
        )
    if wish.output.is_dir():
        raise UsageError(f"{wish.output} is a folder; name a file in it")
    if not wish.output.parent.is_dir():
        raise UsageError(f"{wish.output.parent} is not a folder; make it first")


def write(trace: "Trace", reason: "Attribution | None", place: "HeadLocation", wish: Wish) -> None:
    """The file, in the form that its ending names; a place that takes none is the user's fault."""
    from qkv.files import write_error_message

    assert wish.output is not None
    try:
        _write(trace, reason, place, wish)
    except OSError as error:
        raise UsageError(write_error_message(wish.output, error)) from error
    print_stderr(f"wrote {wish.output}")


def _write(trace: "Trace", reason: "Attribution | None", place: "HeadLocation", wish: Wish) -> None:
    assert wish.output is not None
    ending = wish.output.suffix.lower()
    if ending == ".html":
        from qkv.interpret.page import attribution_sections, write_page

        write_page(trace, wish.output, why=() if reason is None else attribution_sections(reason))
    elif ending == ".safetensors":
        trace.save(wish.output)
    elif ending in PICTURES:
        from qkv.interpret.export.pictures import draw_head, draw_heads

        if wish.head is None and wish.layer is None:
            draw_heads(trace, wish.output)
        else:
            if place.part == "cross":
                which = "cross"
            else:
                which = place.stack
            draw_head(trace, place.layer, place.head, wish.output, which)
    else:
        from qkv.interpret.export import write_tensor

        assert wish.tensor is not None
        write_tensor(trace, wish.tensor, wish.output, head=wish.head, digits=wish.precision)


def explain_model(wish: Wish) -> int:
    """Show it; 1 if one of the checks fails."""
    from qkv.interpret.glass_box import GlassBox

    check_output(wish)
    box = GlassBox.load(wish.model)
    reason = _reason(box, wish) if wish.why else None
    if reason is not None and wish.output is None:
        return _tell_reason(reason, wish)
    edits = edits_of(box, wish)
    place = _place(box, wish)
    trace = box.trace(wish.text, target=wish.target, keep=_kept(box, wish, place), edits=edits)
    if wish.output is not None:
        write(trace, reason, place, wish)
    else:
        if edits:
            before = box.trace(wish.text, target=wish.target, keep=_ends(trace))
        else:
            before = None
        typer.echo(_shown(trace, before, place, wish))
    if all(proof.ok for proof in trace.checks):
        return 0
    return 1


def _tell_reason(reason: "Attribution", wish: Wish) -> int:
    from json import dumps

    from qkv.interpret.attribution.attribution_text import attribution_lines

    if wish.format == "json":
        typer.echo(dumps(reason.json(), ensure_ascii=False))
    else:
        typer.echo("\n".join(attribution_lines(reason, wish.width, wish.top or 10**9)))
    return 0


def _reason(box: "GlassBox", wish: Wish) -> "Attribution":
    return box.why(
        wish.text,
        target=wish.target,
        label=wish.label,
        token=wish.token,
        against=wish.against,
    )


def _place(box: "GlassBox", wish: Wish) -> "HeadLocation":
    from qkv.interpret.head_walk import locate_head
    from qkv.model import Stack

    config = box.model.config
    stacks = {name: getattr(config, name, None) for name in ("decoder", "encoder")}
    stack = stacks.get(wish.side) or stacks["decoder"] or stacks["encoder"]
    assert isinstance(stack, Stack)
    heads = stack.attention.heads
    where = (wish.layer or 0, wish.head or 0)
    return locate_head(box.graph, heads, *where, wish.cross, wish.side)


def _kept(box: "GlassBox", wish: Wish, place: "HeadLocation") -> list[str]:
    """What has to be computed for this wish, and no more."""
    from qkv.interpret.head_walk import head_value_names

    found = box.graph
    answers = [name for name in ("output", "probabilities", "served") if name in found.nodes]
    if wish.output is None:
        ending = ""
    else:
        ending = wish.output.suffix.lower()
    if ending in PICTURES:
        drawn = (".weights", ".masked", ".mixed", ".value", ".seen")
        return [*(name for name in found.nodes if name.endswith(drawn)), *answers]
    if ending:
        if wish.tensor is None:
            return ["*"]
        return [found.resolve(wish.tensor), *answers]
    return [*head_value_names(found, place), *answers, found.resolve("output"), "layers"]


def _ends(trace: "Trace") -> list[str]:
    """What is compared before and after an edit."""
    return [name for name in trace if name in trace.graph.nodes]


def _shown(trace: "Trace", before: "Trace | None", place: "HeadLocation", wish: Wish) -> str:
    """The walk through one head and the answer, in the wished format."""
    from qkv.interpret.head_walk import walk_head
    from qkv.interpret.render.formats import render_latex, render_markdown, render_model_json
    from qkv.interpret.render.sections import WalkView, cell_lines
    from qkv.interpret.render.terminal_text import render_model_text
    from qkv.interpret.trace import compare_traces

    walk = walk_head(trace, place)
    usual = tuple(step.name for step in walk if not step.is_input or step.axes[0])
    look = WalkView(
        walk, wish.precision, wish.steps or usual, crop=_crop(walk["weights"].value, wish.top),
        mark_rounding=False,
    )  # fmt: skip
    if before is None:
        changed = None
    else:
        changed = compare_traces(before, trace)
    if wish.format == "json":
        return render_model_json(look, trace, changed, wish.cell)
    if wish.cell is not None:
        return "\n".join(cell_lines(look, *wish.cell))
    if wish.format == "text":
        return render_model_text(look, trace, changed, wish.width)
    return _with_origin(
        render_markdown(look) if wish.format == "markdown" else render_latex(look), trace, wish
    )


def _with_origin(page: str, trace: "Trace", wish: Wish) -> str:
    """The page, and in comments where its numbers come from."""
    from qkv.interpret.export.tables import comment_lines, provenance

    told = comment_lines(provenance(trace))
    if wish.format == "latex":
        return "\n".join([*(f"% {line}" for line in told), page])
    return "\n".join([page, "", "<!--", *told, "-->"])


def _crop(weights: Any, top: int) -> Any:
    """The last queries and the keys they look at most, so many of each, and so many features."""
    from qkv.interpret.render.sections import Crop

    rows, keys = weights.shape
    if not top:
        return Crop()
    queries = tuple(range(max(0, rows - top), rows))
    most = weights[list(queries)].max(axis=0).argsort(kind="stable")[::-1][:top]
    return Crop(queries, tuple(sorted(int(key) for key in most)) if keys > top else None, top)
