"""`qkv explain … -o FILE`: a page, a picture, a trace, or one value, by the file's ending."""

from typing import TYPE_CHECKING

from qkv.cli.explain_wish import Wish
from qkv.cli.progress import say
from qkv.errors import UsageError

if TYPE_CHECKING:
    from qkv.explain.head import Place
    from qkv.explain.trace import Trace
    from qkv.explain.why.ask import Reason

PICTURES, TABLES = (".png", ".svg", ".pdf"), (".csv", ".npy", ".md", ".tex")


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


def write(trace: "Trace", reason: "Reason | None", place: "Place", wish: Wish) -> None:
    """The file, in the form that its ending names; a place that takes none is the user's fault."""
    from qkv.files import unwritten

    assert wish.output is not None
    try:
        _write(trace, reason, place, wish)
    except OSError as error:
        raise UsageError(unwritten(wish.output, error)) from error
    say(f"wrote {wish.output}")


def _write(trace: "Trace", reason: "Reason | None", place: "Place", wish: Wish) -> None:
    assert wish.output is not None
    ending = wish.output.suffix.lower()
    if ending == ".html":
        from qkv.explain.page import write_page
        from qkv.explain.page.reasons import sections

        write_page(trace, wish.output, why=() if reason is None else sections(reason))
    elif ending == ".safetensors":
        trace.save(wish.output)
    elif ending in PICTURES:
        from qkv.explain.export.pictures import draw_head, draw_heads

        if wish.head is None and wish.layer is None:
            draw_heads(trace, wish.output)
        else:
            which = "cross" if place.part == "cross" else place.stack
            draw_head(trace, place.layer, place.head, wish.output, which)
    else:
        from qkv.explain.export import write_tensor

        assert wish.tensor is not None
        write_tensor(trace, wish.tensor, wish.output, head=wish.head, digits=wish.precision)
