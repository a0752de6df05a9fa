"""`qkv explain TEXT --model DIR`: the walk, the answer and its reasons, for any model."""

from typing import TYPE_CHECKING, Any

import typer

from qkv.cli.explain_files import PICTURES, check_output, write
from qkv.cli.explain_wish import Wish, edits_of

if TYPE_CHECKING:
    from qkv.explain.glass_box import GlassBox
    from qkv.explain.head import Place
    from qkv.explain.trace import Trace
    from qkv.explain.why.ask import Reason


def explain_model(wish: Wish) -> int:
    """Show it; 1 if one of the checks fails."""
    from qkv.explain import glass_box

    check_output(wish)
    box = glass_box.load(wish.model)
    reason = _reason(box, wish) if wish.why else None
    if reason is not None and wish.output is None:
        return _tell_reason(reason, wish)
    edits = edits_of(box, wish)
    place = _place(box, wish)
    trace = box.trace(wish.text, target=wish.target, keep=_kept(box, wish, place), edits=edits)
    if wish.output is not None:
        write(trace, reason, place, wish)
    else:
        before = box.trace(wish.text, target=wish.target, keep=_ends(trace)) if edits else None
        typer.echo(_shown(trace, before, place, wish))
    return 0 if all(proof.ok for proof in trace.checks) else 1


def _tell_reason(reason: "Reason", wish: Wish) -> int:
    from json import dumps

    from qkv.explain.why.text import lines

    if wish.format == "json":
        typer.echo(dumps(reason.json(), ensure_ascii=False))
    else:
        typer.echo("\n".join(lines(reason, wish.width, wish.top or 10**9)))
    return 0


def _reason(box: "GlassBox", wish: Wish) -> "Reason":
    return box.why(
        wish.text,
        target=wish.target,
        label=wish.label,
        token=wish.token,
        against=wish.against,
    )


def _place(box: "GlassBox", wish: Wish) -> "Place":
    from qkv.explain.head import place_of
    from qkv.explain.trace import graph
    from qkv.model import Stack

    config = box.model.config
    stacks = {name: getattr(config, name, None) for name in ("decoder", "encoder")}
    stack = stacks.get(wish.side) or stacks["decoder"] or stacks["encoder"]
    assert isinstance(stack, Stack)
    heads, where = stack.attention.heads, (wish.layer or 0, wish.head or 0)
    return place_of(graph(box.model), heads, *where, wish.cross, wish.side)


def _kept(box: "GlassBox", wish: Wish, place: "Place") -> list[str]:
    """What has to be computed for this wish, and no more."""
    from qkv.explain.head import values_of
    from qkv.explain.trace import graph

    found = graph(box.model)
    answers = [name for name in ("output", "probabilities", "served") if name in found.nodes]
    ending = "" if wish.output is None else wish.output.suffix.lower()
    if ending in PICTURES:
        drawn = (".weights", ".masked", ".mixed", ".value", ".seen")
        return [*(name for name in found.nodes if name.endswith(drawn)), *answers]
    if ending:
        return ["*"] if wish.tensor is None else [found.name(wish.tensor), *answers]
    return [*values_of(found, place), *answers, found.name("output"), "layers"]


def _ends(trace: "Trace") -> list[str]:
    """What is compared before and after an edit."""
    return [name for name in trace if name in trace.graph.nodes]


def _shown(trace: "Trace", before: "Trace | None", place: "Place", wish: Wish) -> str:
    """The walk through one head and the answer, in the wished format."""
    from qkv.explain.head import walk_head
    from qkv.explain.render.json import model_json
    from qkv.explain.render.latex import latex
    from qkv.explain.render.markdown import markdown
    from qkv.explain.render.model_text import model_text
    from qkv.explain.render.page import Look, cell_lines
    from qkv.explain.trace.difference import difference

    walk = walk_head(trace, place)
    usual = tuple(step.name for step in walk if not step.given or step.axes[0])
    look = Look(
        walk, wish.precision, wish.steps or usual, crop=_crop(walk["weights"].value, wish.top),
        by_hand=False,
    )  # fmt: skip
    changed = None if before is None else difference(before, trace)
    if wish.format == "json":
        return model_json(look, trace, changed, wish.cell)
    if wish.cell is not None:
        return "\n".join(cell_lines(look, *wish.cell))
    if wish.format == "text":
        return model_text(look, trace, changed, wish.width)
    return _with_origin(markdown(look) if wish.format == "markdown" else latex(look), trace, wish)


def _with_origin(page: str, trace: "Trace", wish: Wish) -> str:
    """The page, and in comments where its numbers come from."""
    from qkv.explain.export.provenance import comment_lines, provenance

    told = comment_lines(provenance(trace))
    if wish.format == "latex":
        return "\n".join([*(f"% {line}" for line in told), page])
    return "\n".join([page, "", "<!--", *told, "-->"])


def _crop(weights: Any, top: int) -> Any:
    """The last queries and the keys they look at most, so many of each, and so many features."""
    from qkv.explain.render.page import Crop

    rows, keys = weights.shape
    if not top:
        return Crop()
    queries = tuple(range(max(0, rows - top), rows))
    most = weights[list(queries)].max(axis=0).argsort(kind="stable")[::-1][:top]
    return Crop(queries, tuple(sorted(int(key) for key in most)) if keys > top else None, top)
