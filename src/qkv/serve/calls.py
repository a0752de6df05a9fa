"""What the engine process can be asked for besides tokens and vectors, by name.

Each function gets the model and the arguments of a request, and returns plain values. What a
route answers here is what the library and the command line give: the same functions, the same JSON.
"""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from qkv.engine.cluster import Method
from qkv.engine.cluster import cluster as cluster_vectors
from qkv.errors import UsageError, unknown
from qkv.interpret import GlassBox, head_value_names, locate_head, walk_head
from qkv.interpret.attribution import last_attention, logit_lens, why_answer, why_similar
from qkv.interpret.render import Crop, WalkView, render_model_json
from qkv.interpret.trace import AblateHead, Edit, NoMask, NoPosition, NoScale, ReplaceToken
from qkv.model import Decoder, Stack, Translator
from qkv.serve.cooperative import detached

MAX_JSON_NUMBERS = 4096  # of a tensor; larger ones only as safetensors

Function = Callable[..., Any]


def translate(box: GlassBox, texts: Sequence[str], **options: Any) -> list[dict[str, Any]]:
    """A translation for each text, as `qkv translate --json` prints it."""
    best = options.get("best", 1)
    tokenizer = box.tokenizer
    results = []
    for translation in box.translate(texts, **options):
        fields = translation.json(best)
        fields["source_tokens"] = len(tokenizer.encode(translation.source))
        fields["target_tokens"] = len(tokenizer.encode(translation.text, target=True))
        fields["remark"] = translation.remark
        results.append(fields)
    return results


def similarity(box: GlassBox, a: str, b: str, explain: bool = False) -> dict[str, Any]:
    """The cosine of two texts; explained, the pairs of words that add up to it."""
    if explain:
        return timed(lambda: why_similar(box.model, box.tokenizer, a, b).json())
    return {"cosine": box.similar(a, b).cosine}


def cluster(
    box: GlassBox,
    texts: Sequence[str],
    k: int | None = None,
    method: Method = "kmeans",
    seed: int = 0,
) -> dict[str, Any]:
    """The clusters of some texts, as `qkv cluster --json` prints them."""
    vectors = box.embed(texts, long="average")
    with detached():  # scikit-learn, not the model
        clustering = cluster_vectors(texts, vectors, k=k, method=method, seed=seed)
        return {
            "data": [clustering.row(index) for index in range(len(texts))],
            "clusters": [each.json() for each in clustering.clusters],
            "selection": clustering.selection_json(),
            "warnings": list(clustering.warnings),
        }


def why(box: GlassBox, text: str, **options: Any) -> dict[str, Any]:
    """Which words made the output what it is, as `qkv explain --why --json` prints it."""
    return timed(lambda: box.why(text, **options).json())


def why_completion(
    box: GlassBox, prompt_ids: Sequence[int], answer_ids: Sequence[int]
) -> dict[str, Any]:
    """Which words of a prompt the words of its completion come from."""
    model = box.model
    assert isinstance(model, Decoder)
    return timed(lambda: why_answer(model, box.tokenizer, prompt_ids, answer_ids).json())


def walk(
    box: GlassBox,
    text: str,
    layer: int = 0,
    head: int = 0,
    cross: bool = False,
    side: str = "",
    target: str | None = None,
    edits: Sequence[Mapping[str, Any]] = (),
) -> dict[str, Any]:
    """One head step by step, as `qkv explain --model --json` prints it."""
    changes = parse_edits(box, edits)
    location = locate_head(box.graph, _stack(box, side).attention.heads, layer, head, cross, side)
    outputs = [name for name in ("output", "probabilities", "served") if name in box.graph.nodes]
    keep = [*head_value_names(box.graph, location), *outputs, box.graph.resolve("output"), "layers"]
    started = time.perf_counter()
    trace = box.trace(text, target=target, keep=keep, edits=changes)
    difference = None
    if changes:
        difference = box.what_if(text, changes, target=trace.metadata.get("target"))
    steps = walk_head(trace, location)
    computed = tuple(step.name for step in steps if not step.is_input or step.axes[0])
    view = WalkView(steps, 4, computed, crop=Crop(), mark_rounding=False)
    page: dict[str, Any] = json.loads(render_model_json(view, trace, difference, None))
    page["cost_ms"] = 1000 * (time.perf_counter() - started)
    return page


def what_if(
    box: GlassBox, text: str, edits: Sequence[Mapping[str, Any]], target: str | None = None
) -> dict[str, Any]:
    """The prediction with and without edits, and where they first make a difference."""
    changes = parse_edits(box, edits)
    return timed(lambda: box.what_if(text, changes, target=target).json())


def trace(
    box: GlassBox,
    text: str,
    names: Sequence[str] = (),
    target: str | None = None,
    edits: Sequence[Mapping[str, Any]] = (),
    tensors: str = "json",
) -> dict[str, Any]:
    """Named tensors of one forward pass; as safetensors bytes, or as lists of numbers.

    Without names: what there is, with its shapes and operations, but no numbers.
    """
    changes = parse_edits(box, edits)
    keep = [box.graph.resolve(name) if name in box.graph.aliases else name for name in names]
    captured = box.trace(text, target=target, keep=keep or ["*"], edits=changes)
    rows: list[dict[str, Any]] = []
    for name in captured:
        node = captured.node(name)
        shape = list(captured[name].shape)
        rows.append({"name": name, "shape": shape, "inputs": list(node.inputs)})
    result: dict[str, Any] = {
        "tensors": rows,
        "tokens": {name: list(tokens) for name, tokens in captured.tokens.items()},
        "checks": [],
        "about": {name: str(value) for name, value in captured.metadata.items()},
        "edits": list(captured.edits),
    }
    if not names:
        result["checks"] = _finite([check.json() for check in captured.checks])
    if not names:
        return result
    if tensors == "safetensors":
        from safetensors.numpy import save

        arrays = {name: np.ascontiguousarray(t.float().numpy()) for name, t in captured.items()}
        result["data"] = save(arrays)
        return result
    count = sum(tensor.numel() for tensor in captured.values())
    if count > MAX_JSON_NUMBERS:
        raise UsageError(
            f"these tensors have {count:,} numbers, but JSON is for {MAX_JSON_NUMBERS:,} at most; "
            "ask for fewer names, or for Accept: application/x-safetensors"
        )
    for row in rows:
        row["value"] = _finite(captured[row["name"]].float().tolist())
    return result


FUNCTIONS: dict[str, Function] = {
    "translate": translate,
    "similarity": similarity,
    "cluster": cluster,
    "why": why,
    "why_completion": why_completion,
    "walk": walk,
    "what_if": what_if,
    "trace": trace,
}

EDIT_KINDS = ("ablate_head", "no_mask", "no_scale", "no_position", "replace_token")


def parse_edits(box: GlassBox, edits: Sequence[Mapping[str, Any]]) -> list[Edit]:
    """The edits of a request; raises a UsageError for one the model does not have."""
    parsed: list[Edit] = []
    for edit in edits:
        kind = edit["kind"]
        if kind == "no_mask":
            parsed.append(NoMask())
        elif kind == "no_scale":
            parsed.append(NoScale())
        elif kind == "no_position":
            parsed.append(NoPosition())
        elif kind == "ablate_head":
            parsed.append(_ablate_head(box, edit))
        elif kind == "replace_token":
            parsed.append(_replace_token(box, edit))
        else:
            raise UsageError(unknown("edit", kind, EDIT_KINDS))
    return parsed


def _ablate_head(box: GlassBox, edit: Mapping[str, Any]) -> Edit:
    side = edit.get("side") or _default_side(box)
    stack = _stack(box, side)
    layer = edit.get("layer", 0)
    head = edit.get("head", 0)
    layers = box.graph.layer_count(side)
    if not (0 <= layer < layers and 0 <= head < stack.attention.heads):
        raise UsageError(
            f"head {layer}.{head} does not exist; the {side} has layers 0 to {layers - 1} and "
            f"heads 0 to {stack.attention.heads - 1}"
        )
    return AblateHead(side, layer, head, "cross" if edit.get("cross") else "attention")


def _replace_token(box: GlassBox, edit: Mapping[str, Any]) -> Edit:
    token = edit.get("token", "")
    ids = box.tokenizer.encode(token)
    if len(ids) != 1:
        raise UsageError(
            f"replace_token puts one token in the place of another, but “{token}” is {len(ids)}"
        )
    sequence = "source" if isinstance(box.model, Translator) else "text"
    return ReplaceToken(edit.get("position", 0), ids[0], token, sequence)


def _default_side(box: GlassBox) -> str:
    return "encoder" if not hasattr(box.model.config, "decoder") else "decoder"


def _stack(box: GlassBox, side: str) -> Stack:
    stack = getattr(box.model.config, side or _default_side(box), None)
    if not isinstance(stack, Stack):
        raise UsageError(f'this model has no {side}; leave "side" out')
    return stack


def explain_token(
    box: GlassBox, ids: Sequence[int], token: int, wanted: Sequence[str], top: int
) -> dict[str, Any]:
    """What each layer would have said instead of `token` after these ids, and where it looked.

    The attention is the mean over heads of each layer, the largest weights as (position, weight).
    """
    model = box.model
    assert isinstance(model, Decoder)
    explanation: dict[str, Any] = {}
    if "lens" in wanted:
        readouts = logit_lens(model, box.tokenizer, ids, token)
        explanation["lens"] = [readout.json() for readout in readouts]
    if "attention" in wanted:
        explanation["attention"] = _attention_rows(model, ids, top)
    return explanation


def _attention_rows(model: Decoder, ids: Sequence[int], top: int) -> list[dict[str, Any]]:
    """For each layer the keys that the last token attends to most, over its heads."""
    rows = []
    for layer, weights in enumerate(last_attention(model, ids)):
        mean = weights.mean(axis=0)
        best = np.argsort(-mean, kind="stable")[:top]
        keys = [[int(key), float(mean[key])] for key in best]
        rows.append({"layer": layer, "keys": keys})
    return rows


def timed(compute: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """The result with the time it took in the engine, pauses for others included."""
    started = time.perf_counter()
    result: dict[str, Any] = _finite(compute())
    result["cost_ms"] = 1000 * (time.perf_counter() - started)
    return result


def _finite(value: Any) -> Any:
    """The value with infinities as the strings that our JSON has for them."""
    if isinstance(value, dict):
        return {str(key): _finite(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(each) for each in value]
    if isinstance(value, float) and value in (float("inf"), float("-inf")):
        return "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, np.generic):
        return _finite(value.item())
    return value
