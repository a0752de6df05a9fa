"""Keys that qkv 0.1 wrote to disk, and what they are called now.

Every file format that outlives a version is read through `upgrade`: a bundle's config.json, its
special_tokens.json (then marks.json), recipe.toml and metrics.jsonl, and the operations of a saved
trace. Files are only ever written with the new keys.
"""

from collections.abc import Mapping
from typing import Any

# For each file: old key -> new key, at any depth. A rule "parent.key" holds only inside `parent`,
# which is written as it is called now; ".key" only at the top.
KEYS: dict[str, dict[str, str]] = {
    "config.json": {
        # A stack of layers is `encoder` or `decoder`; settings may name its fields at the top.
        ".distinct": "unique_layers",
        "encoder.distinct": "unique_layers",
        "decoder.distinct": "unique_layers",
        ".table_width": "embedding_width",
        "encoder.table_width": "embedding_width",
        "decoder.table_width": "embedding_width",
        ".residual": "norm_placement",
        "encoder.residual": "norm_placement",
        "decoder.residual": "norm_placement",
        "embedding.types": "token_types",
        "source.types": "token_types",
        "position.share": "fraction",
        "position.stretch": "scaling",
        "position.adjacent": "interleaved",
        "position.farthest": "max_distance",
        "position.both_ways": "bidirectional",
        "scaling.low": "low_freq_factor",
        "scaling.high": "high_freq_factor",
        "scaling.fast": "beta_fast",
        "scaling.slow": "beta_slow",
        "scaling.length": "attention_factor",
        "norm_placement.bare_first": "skip_first_norm",
        "norm.around_one": "unit_offset",
        "input_norm.around_one": "unit_offset",
        "qk_norm.around_one": "unit_offset",
        "output.narrow": "dense_width",
        "output.score_bias": "logit_bias",
        "output.unit": "normalize",
        ".cut": "max_length",
    },
    "special_tokens.json": {  # ".key" holds at the top level only: template_names has free keys
        ".unknown": "unk",
        ".start": "bos",
        ".end": "eos",
        ".stops": "extra_eos",
        ".first": "forced_bos",
        ".chat": "chat_template",
        ".names": "template_names",
        ".bare": "omit_source_eos",
    },
    "trace": {
        "by": "function",
        "how": "pooling",
        "seen": "mask",
        "speeds": "frequencies",
        "farthest": "max_distance",
        "both_ways": "bidirectional",
        "around_one": "unit_offset",
        "along": "sequences",
        "pick": "hook_point",
        "hook_point.place": "kind",
        "hook_point.which": "key",
        "entries": "stack_inputs",
        "words": "word_ids",
        "about": "metadata",
        "outputs": "output_names",
        "touched": "overrides",
    },
    "recipe.toml": {
        ".average": "ema",
        ".clip": "grad_clip",
        ".optimiser": "optimizer",
        ".recompute": "activation_checkpointing",
        "data.both_ways": "bidirectional",
        "data.held_out": "validation_fraction",
        "optimizer.decay": "weight_decay",
        "optimizer.matrix_decay": "matrix_weight_decay",
        "optimizer.matrix_rate": "matrix_lr",
        "optimizer.rate": "lr",
        "task.agreement": "r_drop",
        "task.blanked": "word_dropout",
        "task.changed": "random_replace_prob",
        "task.counted": "distillation_weight",
        "task.covered": "mask_replace_prob",
        "task.hidden": "mask_prob",
        "task.learns_from": "supervision",
        "task.smoothing": "label_smoothing",
        "task.spliced": "cutmix",
        "tokens.ceiling": "vocab_size",
        "tokens.noise": "bpe_dropout",
    },
    "metrics.jsonl": {
        # Not below: `validation` holds metrics, whose names are up to the task.
        ".gradient": "grad_norm",
        ".held_out": "validation",
        "summary.held_out": "validation",
        ".rate": "lr_scale",
        ".taken": "finite",
    },
    "progress.json": {"done": "step", "evaluated": "last_evaluation"},
    # The first part of a tensor's name in a training checkpoint.
    "state.safetensors": {"average": "ema", "optimiser": "optimizer", "random": "rng"},
}

# For each file: (key, old value) -> new value. The key is written as for KEYS, but as it is now.
VALUES: dict[str, dict[tuple[str, str], str]] = {
    "config.json": {
        ("attention.kind", "sliced_heads"): "block_diagonal",
        ("norm_placement.kind", "notes_norm"): "single_residual_norm",
        ("position.kind", "rotary"): "rope",
        ("scaling.kind", "by_wavelength"): "llama3",
        ("scaling.kind", "by_turns"): "yarn",
    },
    "special_tokens.json": {},
    "recipe.toml": {("schedule.kind", "inverse_root"): "inverse_sqrt"},
    "metrics.jsonl": {},
    "trace": {
        ("kind", "Turned"): "Rotate",
        ("kind", "Scaled"): "ScaleScores",
        ("kind", "Capped"): "SoftCap",
        ("kind", "Seen"): "AttentionMask",
        ("kind", "Slopes"): "AlibiBias",
        ("kind", "Buckets"): "RelativeBias",
        ("kind", "Masked"): "MaskScores",
        ("kind", "Mixed"): "WeightedSum",
        ("kind", "ToHeads"): "LinearToHeads",
        ("kind", "SlicesToHeads"): "BlockDiagonalToHeads",
        ("kind", "FactoredToHeads"): "LowRankToHeads",
        ("kind", "Join"): "ConcatHeads",
        ("kind", "TokenScores"): "TokenLogits",
        ("kind", "Plus"): "ElementwiseAdd",
        ("kind", "Product"): "ElementwiseMultiply",
        ("kind", "Times"): "ScaleBy",
        ("kind", "Bent"): "Activation",
        ("kind", "LayerNormed"): "LayerNormalization",
        ("kind", "RootMeanNormed"): "RMSNormalization",
        ("kind", "Pooled"): "Pool",
        ("kind", "Unit"): "L2Normalize",
        ("kind", "LookUp"): "EmbeddingLookup",
        ("kind", "AddType"): "AddTokenType",
        ("kind", "AddRows"): "AddLearnedPositions",
        ("kind", "AddWaves"): "AddSinusoids",
        ("kind", "Angles"): "RopeAngles",
        ("kind", "Given"): "InputValue",
    },
    "progress.json": {},
    "state.safetensors": {},
}

_NORMS = frozenset({"layer_norm", "rms_norm"})

# For each file and table: the kinds that 0.1 had, as they are called now. A table of any other kind
# is newer than 0.1 or not from this package, so its keys are its own, whatever they are called.
KINDS: dict[str, dict[str, frozenset[str]]] = {
    "config.json": {
        "attention": frozenset({"multi_head", "block_diagonal"}),
        "feed_forward": frozenset({"relu", "gelu", "relu2", "silu", "swiglu", "geglu"}),
        "position": frozenset(
            {"none", "learned", "sinusoidal", "alibi", "relative_buckets", "rope"}
        ),
        "scaling": frozenset({"none", "linear", "ntk", "llama3", "yarn"}),
        "norm": _NORMS,
        "input_norm": _NORMS,
        "qk_norm": _NORMS,
        "norm_placement": frozenset(
            {"post_norm", "pre_norm", "parallel_norm", "sandwich_norm", "single_residual_norm"}
        ),
        "output": frozenset({"next_token", "masked_token", "text_vector", "classify"}),
        "pooling": frozenset({"mean", "first", "last", "max"}),
    },
    "recipe.toml": {
        "optimizer": frozenset({"adamw", "muon"}),
        "schedule": frozenset({"cosine", "linear", "inverse_sqrt", "constant"}),
        "task": frozenset({"classify", "masked", "language", "embed", "translate"}),
    },
}


def upgrade(file: str, fields: Mapping[str, Any], parent: str = "") -> dict[str, Any]:
    """The same fields under the names of this version; fields that have theirs stay.

    A table whose `kind` 0.1 did not have is returned as it is, with all tables inside.
    The [model] table of a recipe is a config.json and follows its rules.
    """
    if _is_foreign(file, fields, parent):
        return dict(fields)
    result = {}
    for key, value in fields.items():
        name = _new_key(file, key, parent)
        if (file, parent, name) == ("recipe.toml", "", "model") and isinstance(value, Mapping):
            result[name] = upgrade("config.json", value)
        else:
            result[name] = _upgrade_value(file, name, value, parent)
    return result


def _is_foreign(file: str, fields: Mapping[str, Any], parent: str) -> bool:
    """Whether the table is of a kind that 0.1 did not have; one without a kind is not."""
    kinds = KINDS.get(file, {}).get(parent)
    if kinds is None or "kind" not in fields:
        return False
    return _upgrade_value(file, "kind", fields["kind"], parent) not in kinds


def _new_key(file: str, key: str, parent: str) -> str:
    rules = KEYS[file]
    return rules.get(f"{parent}.{key}") or rules.get(key, key)


def _upgrade_value(file: str, key: str, value: Any, parent: str) -> Any:
    if isinstance(value, Mapping):
        return upgrade(file, value, parent=key)
    if isinstance(value, list | tuple):
        return [_upgrade_value(file, key, item, parent) for item in value]
    if isinstance(value, str):
        rules = VALUES[file]
        return rules.get((f"{parent}.{key}", value)) or rules.get((key, value), value)
    return value
