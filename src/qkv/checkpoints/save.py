"""One of our models as a public checkpoint: the layout that can say it, and its files.

Whether a layout can say a model is not judged but tried: its config.json is written, read back,
and must give the same model again. What differs is what the layout cannot say.
"""

import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from safetensors.torch import save_file
from torch import Tensor

from qkv.checkpoints.format import Given, Layout, OtherFamilyError
from qkv.checkpoints.registry import LAYOUTS
from qkv.checkpoints.sentence_transformers import sentence_files
from qkv.checkpoints.tensor_names import rows
from qkv.errors import ConfigError
from qkv.files import lexists, read_json
from qkv.model import Classify, EncoderDecoder, EncoderOnly, Model, TextVector
from qkv.model.build import ModelConfig, skeleton
from qkv.text import Tokenizer

# FOLDED layout/tokens: The tokenizer files of a public checkpoint: what they say of lengths,
#   and how we write them.

SETTINGS = "tokenizer_config.json"


def longest_said(place: Path, positions: int) -> int | None:
    """How many tokens of a text are read, if fewer than there are positions for."""
    if not lexists(place / SETTINGS):
        return None
    longest = read_json(place / SETTINGS).get("model_max_length")
    if isinstance(longest, bool) or not isinstance(longest, int | float):
        return None
    # 1e30 is no limit
    if 1 <= longest < positions:
        return int(longest)
    return None


def write_tokenizer(
    tokenizer: Tokenizer, place: Path, longest: int, encoder_decoder: bool
) -> dict[str, Any]:
    """tokenizer.json and tokenizer_config.json; and what config.json says of special tokens."""
    marks = tokenizer.special_tokens
    (place / "tokenizer.json").write_text(tokenizer.to_json(), encoding="utf-8")
    named = {
        "pad_token": marks.pad,
        "unk_token": marks.unk,
        "mask_token": marks.mask,
        "bos_token": None if encoder_decoder else marks.bos,
        "eos_token": marks.eos,
        "cls_token": marks.bos if marks.mask else None,
        "sep_token": marks.eos if marks.mask else None,
        "chat_template": marks.chat_template,
    }
    said: dict[str, Any] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": longest,
    }
    said |= {name: token for name, token in named.items() if token is not None}
    text = json.dumps(said, indent=2, ensure_ascii=False) + "\n"
    (place / SETTINGS).write_text(text, encoding="utf-8")
    ids = {
        "pad_token_id": marks.pad,
        "eos_token_id": marks.eos,
        ("decoder_start_token_id" if encoder_decoder else "bos_token_id"): marks.bos,
        "forced_bos_token_id": marks.forced_bos,
    }
    found: dict[str, Any] = {
        name: tokenizer.token_to_id(token) for name, token in ids.items() if token is not None
    }
    if len(tokenizer.eos_ids) > 1:
        found["eos_token_id"] = list(tokenizer.eos_ids)
    return found


SINGLE = "model.safetensors"

NO_WORD = math.inf  # farther off than any number of differences


class Written(NamedTuple):
    """The layout of what was written, and what a person should know of it."""

    layout: Layout
    notes: list[str]


def layout_for(config: ModelConfig, preferred: str | None = None) -> Layout:
    """The layout that can say this model, the preferred one if it can."""
    ordered = sorted(LAYOUTS, key=lambda layout: layout.kinds[0] != preferred)
    reasons: list[tuple[float, str, str]] = []  # how far off, which layout, and why
    for layout in ordered:
        name = layout.kinds[0]
        try:
            again = _again(layout, layout.fields(config), config)
        except OtherFamilyError:
            continue
        except ConfigError as error:  # a choice the layout has no word for
            reasons.append((NO_WORD, name, str(error)))
            continue
        differences = list(_differences(_plain(config), _plain(again)))
        if not differences:
            return layout
        reasons.append((len(differences), name, differences[0]))
    off, name, why = min(reasons, key=lambda reason: reason[0])
    if off == NO_WORD:
        nearest = f"in {name}, for example,"
    else:
        nearest = f"in {name}, the nearest,"
    raise ConfigError(f"no public layout can say this model; {nearest} {why}")


def public_labels(config: ModelConfig, names: tuple[str, ...]) -> Classify | None:
    """The output for labels with which this body could be written back, if there is one."""
    try:
        return layout_for(config).labels(config, names)
    except ConfigError:
        return None


def write_checkpoint(
    model: Model, tokenizer: Tokenizer | None, place: Path, preferred: str | None = None
) -> Written:
    """Write config.json, safetensors and tokenizer files into an empty directory."""
    config = model.config
    layout = layout_for(config, preferred)
    fields = layout.fields(config)
    notes = []
    if tokenizer is not None and tokenizer.has_language_pair:
        notes.append(
            "the tokenizer cuts two languages in two ways, which one tokenizer.json cannot say: "
            "copy source.spm, target.spm and vocab.json from where the model came from"
        )
    elif tokenizer is not None:
        if isinstance(config, EncoderOnly):
            longest = config.context_length
        else:
            longest = config.length
        translates = isinstance(config, EncoderDecoder)
        said = write_tokenizer(tokenizer, place, longest, translates)
        if not isinstance(config, EncoderOnly):
            _write_json(place / "generation_config.json", said)
        _refuse_other_padding(fields, said)
        fields |= said
    fields["dtype"] = "float32"
    _write_json(place / "config.json", fields)
    save_file(_tensors(layout, model), place / SINGLE, metadata={"format": "pt"})
    if isinstance(config, EncoderOnly) and _is_sentence(config):
        for name, content in sentence_files(config).items():
            (place / name).parent.mkdir(exist_ok=True)
            _write_json(place / name, content)
    if isinstance(config.output, TextVector) and config.output.dense:
        notes.append(
            "a text's vector goes through the pooler: transformers gives it as pooler_output, and "
            "qkv import needs --pooler to do so again"
        )
    return Written(layout, notes)


def _refuse_other_padding(fields: Mapping[str, Any], said: Mapping[str, Any]) -> None:
    """In some layouts the padding's number says where positions begin."""
    wanted = fields.get("pad_token_id")
    found = said.get("pad_token_id")
    if wanted is not None and found not in (None, wanted):
        raise ConfigError(
            f"{fields['model_type']} counts positions from the padding token, which must be "
            f"number {wanted}, but the tokenizer's is {found}"
        )


def _tensors(layout: Layout, model: Model) -> dict[str, Tensor]:
    config = model.config
    weights = {name: t.detach().float().cpu() for name, t in model.state_dict().items()}
    bare = isinstance(config.output, TextVector)  # a body without a head has no prefix
    prefix = "" if bare else layout.prefix
    found = {}
    for row in rows(layout.table(config), weights):
        if row.theirs.startswith(layout.head):
            name = row.theirs
        else:
            name = prefix + row.theirs
        found[name] = row.give(weights).contiguous()
    for copy, first in layout.copies(config).items():
        found[copy] = found[first].clone()
    return found


def _is_sentence(config: EncoderOnly) -> bool:
    return isinstance(config.output, TextVector) and not config.output.dense


def _again(layout: Layout, fields: dict[str, Any], config: ModelConfig) -> ModelConfig:
    """What the layout makes of its own config.json, and of the files of a sentence encoder."""
    output = config.output
    dense = isinstance(output, TextVector) and output.dense
    given = Given(fields, layout.kinds[0], "pooler" if dense else None)
    back = layout.config(given, _stored(layout, config))
    if not isinstance(config, EncoderOnly):
        return back
    carried: dict[str, Any] = {"max_length": config.max_length}  # by the files of its tokenizer
    return back.model_copy(update=carried | ({"output": output} if _is_sentence(config) else {}))


def _stored(layout: Layout, config: ModelConfig) -> set[str]:
    """The public tensors of this model; none if the table has no place for some of ours, which
    then shows in what differs.
    """
    try:
        return {row.theirs for row in rows(layout.table(config), skeleton(config).state_dict())}
    except ConfigError:
        return set()


def _plain(config: ModelConfig) -> dict[str, Any]:
    """Without what only training uses, and without sizes that only repeat what is usual."""

    def without(value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        plain = {k: without(v) for k, v in value.items() if k != "dropout"}
        heads = plain.get("attention")
        if isinstance(heads, dict) and heads["kind"] == "multi_head":
            usual = {"kv_heads": heads["heads"], "head_width": plain["width"] // heads["heads"]}
            same = {name: None for name, size in usual.items() if heads[name] == size}
            plain["attention"] = heads | same
        return plain

    plain: dict[str, Any] = without(config.model_dump())
    return plain


def _differences(ours: Any, theirs: Any, path: str = "") -> Iterator[str]:
    if isinstance(ours, Mapping) and isinstance(theirs, Mapping):
        if ours.get("kind") != theirs.get("kind"):
            yield f"{path or 'the model'} is {theirs.get('kind')}, not {ours.get('kind')}"
            return
        for name in dict.fromkeys((*ours, *theirs)):
            inner = f"{path}.{name}" if path else name
            yield from _differences(ours.get(name), theirs.get(name), inner)
    elif ours != theirs:
        yield f"{path} is {_named(theirs)}, not {_named(ours)}"


def _named(value: Any) -> str:
    if isinstance(value, Mapping):
        return str(value.get("kind", value))
    return str(value)


def _write_json(path: Path, content: Any) -> None:
    path.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
