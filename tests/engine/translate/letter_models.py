"""Translators that read and write letters: tiny ones with opinions, and a real one."""

import json
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tests.checkpoints.test_transliteration import CONFIG, load_translator
from tests.engine.tiny_translators import translator
from torch import Tensor

from qkv.engine.translate import TranslationTemplate
from qkv.model import Embedding, Learned, Translator
from qkv.text import Tokenizer

LETTERS = "abcdefg hijklm.,?nABCD"
ROOM = 18  # tokens of a source that the tiny models read, the end aside


@cache
def letters() -> Tokenizer:
    return Tokenizer.train("characters", [LETTERS], 100)


def speller(seed: int = 0, ending: float = 3.0, **changes: object) -> Translator:
    """A translator from letters to letters; `ending` is how gladly it ends."""
    model = translator(seed, vocabulary=letters().vocab_size, **changes)  # type: ignore[arg-type]
    with torch.no_grad():
        model.output.bias[letters().eos_id] = ending
    return model


@torch.no_grad()
def aligned(decoder_layers: int = 2) -> Translator:
    """A translator whose layers look straight across, but for the last, which looks backwards.

    Positions are the only thing a vector holds, each in a coordinate of its own; target position t
    looks at source position t, in the last layer at source position 6 − t. It writes nothing but
    "a", and never ends.
    """
    stack = translator().config.decoder.model_copy(
        update={"width": 24, "position": Learned(), "layers": decoder_layers}
    )
    attention = stack.attention.model_copy(update={"heads": 1, "kv_heads": 1})
    stack = stack.model_copy(update={"attention": attention})
    model = speller(
        ending=-100.0,
        position=Learned(),
        encoder=stack.model_copy(update={"layers": 1}),
        decoder=stack,
        embedding=Embedding(vocabulary=letters().vocab_size),
    )
    for table in (model.embedding.weight, model.output.weight):
        table.mul_(1e-3)
    for name, weight in model.named_parameters():
        if ".output." in name or ".down." in name:
            weight.zero_()  # no layer changes anything
    there, back = torch.eye(24), torch.eye(24)
    back[:7] = back[:7].flip(0)
    for side in (model.encoder, model.decoder):
        side.position.weight.copy_(torch.eye(24)[: side.position.weight.shape[0]])
    model.output.bias[letters().token_to_id("a")] = 5.0
    blocks = list(model.decoder.blocks())
    for block in blocks:
        turn = back if block is blocks[-1] else there
        _set(block.cross.query, 9.0 * turn)
        _set(block.cross.key, there)
    return model


def _set(projection: Any, matrix: Tensor) -> None:
    for weight in projection.parameters():
        weight.copy_(matrix.reshape(weight.shape) if weight.numel() == matrix.numel() else 0.0)


@dataclass(frozen=True)
class Arabic:
    """The public transliterator with one vocabulary for both alphabets."""

    model: Translator
    tokenizer: Tokenizer
    expected: list[dict[str, Any]]

    @property
    def template(self) -> TranslationTemplate:
        return TranslationTemplate.of(self.tokenizer, self.model.config)

    @property
    def sources(self) -> list[str]:
        return [case["src"].replace(" ", "") for case in self.expected]


def arabic(shared: Path) -> Arabic:
    place = shared / "models" / "aren-transliteration"
    with np.load(place / "aren_v2.npz") as stored:
        theirs = {n.replace("/", "."): torch.from_numpy(stored[n]) for n in stored.files}
    source, target = (
        (place / "ctranslate2" / f"{name}_vocabulary.txt").read_text("utf-8").split("\n")[:-1]
        for name in ("source", "target")
    )
    learned = Tokenizer.train("characters", ["".join(source[3:] + target[3:])], 1000)
    tokenizer = Tokenizer(learned._backend, replace(learned.special_tokens, omit_source_eos=True))
    tables = {
        "source": Embedding(vocabulary=tokenizer.vocab_size, scaled=True),
        "embedding": Embedding(vocabulary=tokenizer.vocab_size, scaled=True),
    }
    model = CONFIG.model_copy(update=tables).build()
    filled = load_translator(theirs).state_dict()
    for name, symbols, elsewhere in (
        ("source.weight", source, 0.0),
        ("embedding.weight", target, 0.0),
        ("output.weight", target, 0.0),
        ("output.bias", target, -1e4),  # what is no target symbol is never written
    ):
        filled[name] = _moved(filled[name], symbols, tokenizer, elsewhere)
    model.load_state_dict(filled)
    expected = json.loads((place / "expected.json").read_text("utf-8"))
    return Arabic(model.eval(), tokenizer, expected)


def _moved(table: Tensor, symbols: list[str], tokenizer: Tokenizer, elsewhere: float) -> Tensor:
    """The rows of the symbols where the tokenizer has them; the last row is the unknown's."""
    marks = [tokenizer.pad_id, tokenizer.bos_id, tokenizer.eos_id]
    ids = [*marks, *(tokenizer.token_to_id(symbol) for symbol in symbols[3:]), tokenizer.unk_id]
    moved = torch.full((tokenizer.vocab_size, *table.shape[1:]), elsewhere)
    moved[ids] = table
    return moved
