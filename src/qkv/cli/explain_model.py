"""`qkv explain TEXT --model DIR`: the walk through a head of a model, its output and attributions.

With `-o FILE` a page, a picture, a trace or one tensor is written, by the suffix of the file.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from qkv.cli.explain_patch import explain_sweep, patches_of
from qkv.cli.progress import print_stderr
from qkv.errors import UsageError

if TYPE_CHECKING:
    from qkv.interpret import GlassBox, HeadLocation
    from qkv.interpret.attribution import Attribution
    from qkv.interpret.render import Crop
    from qkv.interpret.trace import Edit, Trace, TraceDifference

PICTURE_SUFFIXES = (".png", ".svg", ".pdf")
TABLE_SUFFIXES = (".csv", ".npy", ".md", ".tex")
SUFFIXES = (".html", ".safetensors", *PICTURE_SUFFIXES, *TABLE_SUFFIXES)

# Endings of the names of the tensors that a picture of attention needs.
PICTURE_TENSORS = (".weights", ".masked", ".mixed", ".value", ".seen")


@dataclass(frozen=True)
class ExplainArgs:
    """The options of `qkv explain --model`."""

    model: Path
    text: str
    target: str | None
    layer: int | None
    head: int | None
    cross: bool
    side: str  # "" if --side was not passed
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
    head_off: tuple[str, ...]
    replace: tuple[str, ...]
    patch: tuple[str, ...]
    patch_from: str | None
    ablate: tuple[str, ...]
    steer: tuple[str, ...]
    patch_sweep: str | None
    output: Path | None
    tensor: str | None
    full: bool
    width: int

    @property
    def suffix(self) -> str:
        """Of the output file, in lower case; empty without one."""
        if self.output is None:
            return ""
        return self.output.suffix.lower()


def explain_model(args: ExplainArgs) -> int:
    """Print or write the explanation; returns the exit code, 1 if a check of the trace fails."""
    from qkv.interpret import GlassBox

    check_output(args)
    box = GlassBox.load(args.model)
    if args.patch_sweep is not None:
        return explain_sweep(box, args)
    attribution = None
    if args.why:
        attribution = box.why(
            args.text,
            target=args.target,
            label=args.label,
            token=args.token,
            against=args.against,
        )
        if args.output is None:
            _print_attribution(attribution, args)
            return 0
    edits = edits_of(box, args)
    location = _head_location(box, args)
    names = _tensor_names(box, args, location)
    trace = box.trace(args.text, target=args.target, keep=names, edits=edits)
    if args.output is not None:
        write_output(trace, attribution, location, args)
    else:
        changes = None
        if edits:
            changes = box.what_if(args.text, edits, target=trace.metadata.get("target"))
        typer.echo(_render(trace, changes, location, args))
    if all(check.ok for check in trace.checks):
        return 0
    return 1


def check_output(args: ExplainArgs) -> None:
    """Raise an error about the output file before anything is computed."""
    if args.full and args.suffix != ".html":
        raise UsageError("--full is for a page; add -o page.html")
    if args.output is None:
        return
    if args.suffix not in SUFFIXES:
        raise UsageError(
            f'cannot write "{args.output.name}"; end it with one of {", ".join(SUFFIXES)}'
        )
    if args.suffix in TABLE_SUFFIXES and args.tensor is None:
        raise UsageError(
            f"{args.suffix} holds one value; name it with --tensor, as in "
            "--tensor decoder.0.attention.weights"
        )
    if args.output.is_dir():
        raise UsageError(f"{args.output} is a folder; name a file in it")
    if not args.output.parent.is_dir():
        raise UsageError(f"{args.output.parent} is not a folder; make it first")


def edits_of(box: "GlassBox", args: ExplainArgs) -> list["Edit"]:
    """The edits of the forward pass that the options name, in the order of the options."""
    from qkv.interpret.trace import NoMask, NoPosition, NoScale

    edits: list[Edit] = []
    if args.no_scale:
        edits.append(NoScale())
    if args.no_mask:
        edits.append(NoMask())
    if args.no_position:
        edits.append(NoPosition())
    edits += [_ablate_head(box, args, value) for value in args.head_off]
    edits += [_replace_token(box, value) for value in args.replace]
    edits += patches_of(box, args)
    return edits


def _ablate_head(box: "GlassBox", args: ExplainArgs, value: str) -> "Edit":
    """The edit for --head-off LAYER.HEAD."""
    from qkv.interpret.trace import AblateHead

    layer, dot, head = value.partition(".")
    if not (dot and layer.isdecimal() and head.isdecimal()):
        raise UsageError(f"--head-off {value} should be LAYER.HEAD, as in 0.3")
    stack, heads = _stack_and_heads(box, args)
    layers = box.graph.layer_count(stack)
    if int(layer) >= layers or int(head) >= heads:
        raise UsageError(
            f"--head-off {value} does not exist; the {stack} has layers 0 to {layers - 1} and "
            f"heads 0 to {heads - 1}"
        )
    part = "attention"
    if args.cross:
        part = "cross"
    return AblateHead(stack, int(layer), int(head), part)


def _replace_token(box: "GlassBox", value: str) -> "Edit":
    """The edit for --replace POSITION=TOKEN."""
    from qkv.interpret.trace import ReplaceToken
    from qkv.model import Translator

    position, equals, token = value.partition("=")
    if not equals or not position.removeprefix("-").isdecimal():
        raise UsageError(f"--replace {value} should be POSITION=TOKEN, as in 2=cat")
    ids = box.tokenizer.encode(token)
    if len(ids) != 1:
        raise UsageError(
            f"--replace puts one token in the place of another, but “{token}” is {len(ids)}; "
            "explain the changed text instead"
        )
    sequence = "text"
    if isinstance(box.model, Translator):
        sequence = "source"
    return ReplaceToken(int(position), ids[0], token, sequence)


def _head_location(box: "GlassBox", args: ExplainArgs) -> "HeadLocation":
    """The head that --layer, --head, --cross and --side name; by default the first one."""
    from qkv.interpret import locate_head

    _, heads = _stack_and_heads(box, args)
    layer = args.layer or 0
    head = args.head or 0
    return locate_head(box.graph, heads, layer, head, args.cross, args.side)


def _stack_and_heads(box: "GlassBox", args: ExplainArgs) -> tuple[str, int]:
    """The stack that --side names, by default the decoder if there is one, and its heads."""
    from qkv.model import Stack

    for name in (args.side, "decoder", "encoder"):
        stack = getattr(box.model.config, name, None) if name else None
        if isinstance(stack, Stack):
            return name, stack.attention.heads
    raise AssertionError("a model has an encoder or a decoder")


def _tensor_names(box: "GlassBox", args: ExplainArgs, location: "HeadLocation") -> list[str]:
    """The tensors that the output needs, so that no others are kept."""
    from qkv.interpret import head_value_names

    graph = box.graph
    outputs = [name for name in ("output", "probabilities", "served") if name in graph.nodes]
    if args.suffix in PICTURE_SUFFIXES:
        attention = [name for name in graph.nodes if name.endswith(PICTURE_TENSORS)]
        return [*attention, *outputs]
    if args.suffix:
        if args.tensor is None:
            return ["*"]
        return [graph.resolve(args.tensor), *outputs]
    return [*head_value_names(graph, location), *outputs, graph.resolve("output"), "layers"]


def write_output(
    trace: "Trace",
    attribution: "Attribution | None",
    location: "HeadLocation",
    args: ExplainArgs,
) -> None:
    """Write the file in the format of its suffix; a file that cannot be written is a UsageError."""
    from qkv.files import write_error_message

    assert args.output is not None
    try:
        _write(trace, attribution, location, args, args.output)
    except OSError as error:
        raise UsageError(write_error_message(args.output, error)) from error
    print_stderr(f"wrote {args.output}")


def _write(
    trace: "Trace",
    attribution: "Attribution | None",
    location: "HeadLocation",
    args: ExplainArgs,
    path: Path,
) -> None:
    if args.suffix == ".html":
        from qkv.interpret.page import MAX_BYTES, attribution_sections, write_page

        sections = [] if attribution is None else attribution_sections(attribution)
        write_page(trace, path, why=sections, max_bytes=MAX_BYTES if args.full else None)
    elif args.suffix == ".safetensors":
        trace.save(path)
    elif args.suffix in PICTURE_SUFFIXES:
        from qkv.interpret.export import draw_head, draw_heads

        if args.head is None and args.layer is None:
            draw_heads(trace, path)
        elif location.part == "cross":
            draw_head(trace, location.layer, location.head, path, "cross")
        else:
            draw_head(trace, location.layer, location.head, path, location.stack)
    else:
        from qkv.interpret.export import write_tensor

        assert args.tensor is not None
        write_tensor(trace, args.tensor, path, head=args.head, digits=args.precision)


def _print_attribution(attribution: "Attribution", args: ExplainArgs) -> None:
    from json import dumps

    from qkv.interpret.attribution import attribution_lines

    if args.format == "json":
        typer.echo(dumps(attribution.json(), ensure_ascii=False))
        return
    top = args.top or 10**9  # 0 is all
    typer.echo("\n".join(attribution_lines(attribution, args.width, top)))


def _render(
    trace: "Trace",
    changes: "TraceDifference | None",
    location: "HeadLocation",
    args: ExplainArgs,
) -> str:
    """The walk through one head and the model's output, in the requested format."""
    from qkv.interpret import walk_head
    from qkv.interpret.render import (
        WalkView,
        cell_lines,
        render_latex,
        render_markdown,
        render_model_json,
        render_model_text,
    )

    walk = walk_head(trace, location)
    computed = tuple(step.name for step in walk if not step.is_input or step.axes[0])
    view = WalkView(
        walk,
        args.precision,
        args.steps or computed,
        crop=_crop(walk["weights"].value, args.top),
        mark_rounding=False,
    )
    if args.format == "json":
        return render_model_json(view, trace, changes, args.cell)
    if args.cell is not None:
        return "\n".join(cell_lines(view, *args.cell))
    if args.format == "text":
        return render_model_text(view, trace, changes, args.width)
    if args.format == "markdown":
        return "\n".join([render_markdown(view), "", "<!--", *_provenance_lines(trace), "-->"])
    comments = [f"% {line}" for line in _provenance_lines(trace)]
    return "\n".join([*comments, render_latex(view)])


def _provenance_lines(trace: "Trace") -> list[str]:
    """Model, text and versions, for a comment in the document."""
    from qkv.interpret.export import comment_lines, provenance

    return list(comment_lines(provenance(trace)))


def _crop(weights: Any, top: int) -> "Crop":
    """The last `top` queries, the `top` keys with the largest weights, and `top` features."""
    from qkv.interpret.render import Crop

    rows, columns = weights.shape
    if not top:
        return Crop()
    queries = tuple(range(max(0, rows - top), rows))
    keys = None
    if columns > top:
        by_weight = weights[list(queries)].max(axis=0).argsort(kind="stable")[::-1]
        keys = tuple(sorted(int(key) for key in by_weight[:top]))
    return Crop(queries, keys, top)
