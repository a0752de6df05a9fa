"""The graph of a whole model: its inputs, embeddings, stacks of layers and output head."""

from torch import nn

from qkv.errors import UsageError
from qkv.interpret.trace.attention_graph import positions_name
from qkv.interpret.trace.graph import (
    Graph,
    GraphBuilder,
    HookPoint,
    Sequences,
    is_identity,
    operation_of,
    unsupported_module,
)
from qkv.interpret.trace.operations import (
    AddTokenType,
    EmbeddingLookup,
    Pool,
    Softmax,
    TokenLogits,
)
from qkv.interpret.trace.stack_graph import STATES, add_stack
from qkv.model import (
    Decoder,
    Dropout,
    Encoder,
    Model,
    TextVector,
    TokenEmbedding,
    TokenTypeEmbedding,
    Translator,
    output,
)


def build_graph(model: Model) -> Graph:
    """Every value of one forward pass of the model over one text, or over one pair of texts."""
    b = GraphBuilder()
    if isinstance(model, Translator):
        logits = _add_translator(b, model)
    elif isinstance(model, Decoder):
        _add_ids(b, "ids", "text")
        x = _add_embedding(b, "embedding", model.embedding, "embedding", "ids", "text")
        x = add_stack(b, "decoder", model.decoder, x, "text", causal=True)
        logits = _add_output(b, model.output, x, "text")
    elif isinstance(model, Encoder):
        _add_ids(b, "ids", "text")
        x = _add_embedding(b, "embedding", model.embedding, "embedding", "ids", "text")
        x = add_stack(b, "encoder", model.encoder, x, "text")
        logits = _add_output(b, model.output, x, "text")
    else:
        raise UsageError(
            f"a {type(model).__name__} is neither an encoder, a decoder nor an encoder–decoder"
        )
    b.aliases.setdefault("output", logits)
    node = b.nodes[logits]
    # Not computed by the model, which stops at logits; float64 in `capture_trace`.
    if not isinstance(model.config.output, TextVector):
        b.add("probabilities", Softmax(), (logits,), node.axes, node.sequences, None)
    description = "what the model that answers gave for the same"
    b.add_input("served", description, node.axes, node.sequences)
    return b.graph()


def _add_translator(b: GraphBuilder, model: Translator) -> str:
    _add_ids(b, "source_ids", "source")
    _add_ids(b, "ids", "target")
    if model.source is None:
        # Both sides share one table: the source reads it first, the target is its second call.
        source_path = "embedding"
        target_call = 1
    else:
        source_path = "source"
        target_call = 0
    x = _add_embedding(b, "source", model.source_embedding, source_path, "source_ids", "source")
    memory = add_stack(b, "encoder", model.encoder, x, "source")
    x = _add_embedding(b, "embedding", model.embedding, "embedding", "ids", "target", target_call)
    x = add_stack(b, "decoder", model.decoder, x, "target", memory=memory, causal=True)
    return _add_output(b, model.output, x, "target")


def _add_ids(b: GraphBuilder, ids: str, sequence: str) -> None:
    """The ids of one sequence and the numbers of its positions."""
    b.add_input(ids, "the tokens' numbers", ("B", "T"), {"T": sequence})
    b.add_input(positions_name(sequence), "0, 1, 2, …", ("T",), {"T": sequence})


def _add_embedding(
    b: GraphBuilder,
    name: str,
    table: TokenEmbedding,
    path: str,
    ids: str,
    sequence: str,
    call: int = 0,
) -> str:
    """The vector of each token: looked up, then scaled and a token type added where there is one.

    The last of these steps is called `name`; those before it have names of their own.
    """
    sequences = {"T": sequence}
    scaled = not is_identity(table.scale)
    typed = isinstance(table, TokenTypeEmbedding)
    if scaled or typed:
        rows = f"{name}.rows"
        hook_point = HookPoint(f"{path}.scale", call, "argument")
    else:
        rows = name
        hook_point = HookPoint(path, call)
    inputs = (ids, f"{path}.weight")
    x = b.add(rows, EmbeddingLookup(), inputs, STATES, sequences, hook_point)
    if scaled:
        scale_name = f"{name}.scale" if typed else name
        hook_point = HookPoint(f"{path}.scale", call)
        x = b.add_module(scale_name, table.scale, x, STATES, sequences, hook_point)
    if typed:
        inputs = (x, f"{path}.types")
        x = b.add(name, AddTokenType(), inputs, STATES, sequences, HookPoint(path, call))
    return x


def _add_output(b: GraphBuilder, module: nn.Module, states: str, sequence: str) -> str:
    """The output head; returns the name of the logits, or of the vector."""
    if isinstance(module, output.PooledOutput):
        return _add_pooled_output(b, module, states)
    sequences = {"T": sequence}
    path = "output"
    if isinstance(module, output.PredictionHead):
        states = _add_chain(b, "output.change", module.change, states, sequences)
        module = module.output
        path = "output.output"
    if not isinstance(module, output.TiedLogits):
        raise unsupported_module(module)
    hook_point = HookPoint(f"{path}.scale")
    states = b.add_module("output.scale", module.scale, states, STATES, sequences, hook_point)
    # Press & Wolf 2017: a tied head multiplies by the embedding table itself.
    untied = isinstance(module, output.UntiedLogits)
    inputs = [states, f"{path}.weight" if untied else "embedding.weight"]
    if module.bias is not None:
        inputs.append(f"{path}.bias")
    operation = TokenLogits(module.bias is not None, module.cap)
    axes = ("B", "T", "V")
    return b.add("output", operation, tuple(inputs), axes, sequences, HookPoint("output"))


def _add_pooled_output(b: GraphBuilder, module: output.PooledOutput, states: str) -> str:
    """One vector for the text, then a head on it."""
    hook_point = HookPoint("output.change", 0, "argument")
    x = b.add("output.pooled", Pool(module.pooling.kind), (states,), ("B", "D"), {}, hook_point)
    x = _add_chain(b, "output.change", module.change, x, {})
    return _add_chain(b, "output.output", module.output, x, {}, last="output")


def _add_chain(
    b: GraphBuilder, path: str, module: nn.Module, x: str, sequences: Sequences, last: str = ""
) -> str:
    """One module, or the modules of a Sequential; `last` renames the last of them."""
    parts = [("", module)]
    if isinstance(module, nn.Sequential):
        parts = list(module.named_children())
    parts = [(name, part) for name, part in parts if not isinstance(part, Dropout | nn.Identity)]
    states = STATES if sequences else ("B", "D")
    for i, (child, part) in enumerate(parts):
        part_path = f"{path}.{child}".rstrip(".")
        operation, parameters = operation_of(part)
        inputs = (x, *(f"{part_path}.{parameter}" for parameter in parameters))
        name = part_path
        axes = states
        if last and i == len(parts) - 1:
            name = last
            if isinstance(part, nn.Linear):  # a classifier's
                axes = ("B", "label")
        x = b.add(name, operation, inputs, axes, sequences, HookPoint(part_path))
    return x
