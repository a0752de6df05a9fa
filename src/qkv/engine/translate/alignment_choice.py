"""Which layer and heads of the cross attention align words: the ones that agree with occlusion.

Without the source token it was translated from, a target token is less probable. Where the layer
whose attention names that token is, differs from model to model; so all of them are compared with
the occlusion of a few sentences, and the best one is kept with the model.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch

from qkv.bundle import AlignmentHeads
from qkv.engine.batching import PaddedBatch, inference
from qkv.engine.beam.search import beam_search
from qkv.engine.translate.alignment import cross_attentions
from qkv.engine.translate.segments import TranslationTemplate, segment_texts
from qkv.model import Translator
from qkv.text import Tokenizer

FloatArray = np.ndarray[tuple[int, ...], np.dtype[np.float64]]

MAX_SENTENCES = 32
MAX_TOKENS = 48  # of a sentence; longer ones are left out where there are others
MIN_EFFECT = 0.1  # in log p: a target token that no source token changes by more does not count
MAX_BATCH_LOGITS = 2**25  # held in memory at once


class Sentence(NamedTuple):
    """The ids of a source and its target, without special tokens."""

    source: Sequence[int]
    target: Sequence[int]


def choose_alignment_on_texts(
    model: Translator, tokenizer: Tokenizer, texts: Sequence[str], template: TranslationTemplate
) -> AlignmentHeads:
    """The heads that align these texts with the model's own translations of them."""
    segmented = segment_texts(texts[:MAX_SENTENCES], tokenizer, template, "sentences")
    sources = [ids for text in segmented for ids in text.ids][:MAX_SENTENCES]
    hypotheses = beam_search(
        model,
        [template.wrap_source(ids) for ids in sources],
        bos=template.target_prefix[-1],
        prefix=template.target_prefix[:-1],
        eos=template.eos_id,
        beams=1,
        forbidden=template.suppressed_ids,
    )
    targets = [n_best[0].ids for n_best in hypotheses]
    return choose_alignment(model, template, list(map(Sentence, sources, targets)))


def choose_alignment(
    model: Translator, template: TranslationTemplate, sentences: Sequence[Sentence]
) -> AlignmentHeads:
    """The layer and heads whose mean attention names most often the source token that matters.

    Which one matters is measured: the one without which the target token's log p falls most.
    """
    layers = model.config.decoder.layers
    heads = model.config.decoder.attention.heads
    matters: list[int] = []
    attention: list[FloatArray] = []  # of each target token: (L, H, S)
    for sentence in _short_ones(sentences):
        effects = occlusion_effects(model, template, sentence)
        weights = cross_attentions(model, template, sentence.source, sentence.target)
        for token, row in enumerate(effects):
            if row.max(initial=0.0) >= MIN_EFFECT:
                matters.append(int(row.argmax()))
                attention.append(weights[:, :, token].double().numpy())
    if not matters:  # nothing to measure with: the layer that aligns best as a rule
        return AlignmentHeads(
            layer=max(0, layers - 2), heads=tuple(range(heads)), agreement=0.0, tokens=0
        )
    best = AlignmentHeads(layer=0, heads=(0,), agreement=-1.0, tokens=len(matters))
    for layer in range(layers):
        single = [_agreement(attention, matters, layer, (head,)) for head in range(heads)]
        ranked = sorted(range(heads), key=lambda head: -single[head])
        for count in range(1, heads + 1):
            subset = tuple(sorted(ranked[:count]))
            agreement = _agreement(attention, matters, layer, subset)
            # Of equals the later layer, and more of its heads: their mean is less noisy.
            if agreement >= best.agreement:
                best = AlignmentHeads(
                    layer=layer, heads=subset, agreement=agreement, tokens=len(matters)
                )
    return best


def _short_ones(sentences: Sequence[Sentence]) -> list[Sentence]:
    usable = [sentence for sentence in sentences if sentence.source and sentence.target]
    short = [s for s in usable if max(len(s.source), len(s.target)) <= MAX_TOKENS]
    return (short or usable[:1])[:MAX_SENTENCES]


def _agreement(
    attention: Sequence[FloatArray], matters: Sequence[int], layer: int, heads: tuple[int, ...]
) -> float:
    """The fraction of target tokens that attend most to the source token that matters."""
    agree = 0
    for weights, source_token in zip(attention, matters, strict=True):
        agree += int(weights[layer, list(heads)].mean(axis=0).argmax()) == source_token
    return agree / len(matters)


def occlusion_effects(
    model: Translator, template: TranslationTemplate, sentence: Sentence
) -> FloatArray:
    """How far the log p of each target token falls without each source token: (T, S)."""
    source = list(sentence.source)
    inputs = [source]
    for i in range(len(source)):
        inputs.append(source[:i] + source[i + 1 :])
    wrapped = [template.wrap_source(ids) or [template.eos_id] for ids in inputs]
    full, *occluded = forced_log_probs(model, template, wrapped, sentence.target)
    effects: FloatArray = full[:, None] - np.stack(occluded, axis=1)
    return effects


def forced_log_probs(
    model: Translator,
    template: TranslationTemplate,
    sources: Sequence[Sequence[int]],
    target: Sequence[int],
) -> FloatArray:
    """log p of each token of one target, given each of these source inputs: (N, T)."""
    log_probs = np.zeros((len(sources), len(target)))
    if not target:
        return log_probs
    device = model.embedding.weight.device
    start = len(template.target_prefix) - 1
    decoder_ids = torch.tensor(
        [*template.target_prefix, *target][: start + len(target)], device=device
    )
    target_ids = torch.tensor(target, device=device)
    batch_size = max(1, MAX_BATCH_LOGITS // (len(decoder_ids) * model.config.embedding.vocabulary))
    with inference(model):
        for first in range(0, len(sources), batch_size):
            batch = PaddedBatch.of(sources[first : first + batch_size], pad=0).to(device)
            inputs = decoder_ids.expand(len(batch.ids), -1)
            logits = model(batch.ids, inputs, batch.lengths)[:, start:]
            logs = logits.double().log_softmax(dim=-1)
            index = target_ids.expand(len(logs), -1)[..., None]
            log_probs[first : first + batch_size] = logs.gather(-1, index)[..., 0].cpu().numpy()
    return log_probs
