"""Where a model begins and ends: ids to vectors, and states to its answer."""

from torch import nn

from qkv.explain.trace.graph import Builder
from qkv.explain.trace.modules import cannot_open, does, same
from qkv.explain.trace.node import Pick
from qkv.explain.trace.operation import AddType, LookUp, Pooled, TokenScores
from qkv.model import output
from qkv.model.dropout import Dropout
from qkv.model.embedding import Table, TypedTable


def given_text(b: Builder, ids: str, sequence: str) -> None:
    """The ids of one sequence and the numbers of its positions."""
    b.give(ids, "the tokens' numbers", ("B", "T"), {"T": sequence})
    b.give(positions(sequence), "0, 1, 2, …", ("T",), {"T": sequence})


def positions(sequence: str) -> str:
    """The name of a sequence's positions."""
    return "positions" if sequence in ("text", "target") else f"{sequence}_positions"


def embedded(
    b: Builder, name: str, table: Table, path: str, ids: str, sequence: str, call: int = 0
) -> str:
    """The vector of each token, its type added if there are types."""
    axes, along = ("B", "T", "D"), {"T": sequence}
    plain = same(table.scale) and not isinstance(table, TypedTable)
    rows = Pick(path, call) if plain else Pick(f"{path}.scale", call, "argument")
    first = name if plain else f"{name}.rows"
    x = b.add(first, LookUp(), (ids, f"{path}.weight"), axes, along, rows)
    if not same(table.scale):
        scaled = name if not isinstance(table, TypedTable) else f"{name}.scale"
        x = b.add(
            scaled, does(table.scale).operation, (x,), axes, along, Pick(path + ".scale", call)
        )
    if isinstance(table, TypedTable):
        x = b.add(name, AddType(), (x, f"{path}.types"), axes, along, Pick(path, call))
    return x


def scored(b: Builder, module: nn.Module, states: str, sequence: str) -> str:
    """The model's answer, by whatever it has for an output; gives the name of the last node."""
    if isinstance(module, output.Pooled):
        return _pooled(b, module, states)
    path = "output"
    if isinstance(module, output.Transformed):
        states = _chain(b, "output.change", module.change, states, {"T": sequence})
        module, path = module.output, "output.output"
    if not isinstance(module, output.TiedScores):
        raise cannot_open(module)
    along = {"T": sequence}
    if not same(module.scale):
        pick = Pick(f"{path}.scale")
        times = does(module.scale).operation
        states = b.add("output.scale", times, (states,), ("B", "T", "D"), along, pick)
    own = isinstance(module, output.OwnScores)
    bias = () if module.bias is None else (f"{path}.bias",)
    inputs = (states, f"{path}.weight" if own else "embedding.weight", *bias)
    operation = TokenScores(module.bias is not None, module.cap)
    return b.add("output", operation, inputs, ("B", "T", "V"), along, Pick("output"))


def _pooled(b: Builder, module: output.Pooled, states: str) -> str:
    pick = Pick("output.change", 0, "argument")
    how = Pooled(module.pooling.kind)
    x = b.add("output.pooled", how, (states,), ("B", "D"), {}, pick)
    x = _chain(b, "output.change", module.change, x, {})
    return _chain(b, "output.output", module.output, x, {}, last="output")


def _chain(
    b: Builder, path: str, module: nn.Module, x: str, along: dict[str, str], last: str = ""
) -> str:
    """One module, or several one after the other; the last of them may go by another name."""
    parts = list(module.named_children()) if isinstance(module, nn.Sequential) else [("", module)]
    parts = [(name, part) for name, part in parts if not isinstance(part, Dropout | nn.Identity)]
    axes = ("B", "T", "D") if along else ("B", "D")
    for number, (name, part) in enumerate(parts):
        inner = f"{path}.{name}".rstrip(".")
        operation, parameters = does(part)
        end = last and number == len(parts) - 1
        given = (x, *(f"{inner}.{parameter}" for parameter in parameters))
        shown = ("B", "label") if end and isinstance(part, nn.Linear) else axes
        x = b.add(last if end else inner, operation, given, shown, along, Pick(inner))
    return x
