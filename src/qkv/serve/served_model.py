"""A model in the engine process: how it is loaded, what the front is told of it, its workloads."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from qkv.serve.link import Generate, Message, ModelInfo

if TYPE_CHECKING:
    from qkv.interpret import GlassBox
    from qkv.model import Model
    from qkv.serve.fair_queue import Workload


@dataclass
class WorkerOptions:
    """How models are loaded and served; the same for all of them."""

    int8: bool = False
    compile: bool = False
    threads: int | None = None
    cache_tokens: int = 16_384
    prefix_cache_tokens: int = 8_192


@dataclass
class ServedModel:
    """A loaded model and its workloads.

    box: for explanations, with modules of its own: their hooks must not meet those of another
    forward pass. token_box: the same for what is said of single tokens.
    """

    info: ModelInfo
    engine: GlassBox
    box: GlassBox
    token_box: GlassBox
    workloads: dict[str, Workload] = field(default_factory=dict)


def load_model(
    name: str, path: str, options: WorkerOptions, send: Callable[[Message], None]
) -> ServedModel:
    """The model with the workloads that suit it, warmed up."""
    from qkv.engine.generate import Scheduler
    from qkv.interpret import GlassBox
    from qkv.model import Decoder, Encoder, NextToken, Translator
    from qkv.serve.call_work import CallWorkload, TranslationWorkload
    from qkv.serve.decoder_work import GenerationWorkload, ScoringWorkload
    from qkv.serve.encoder_work import EncoderWorkload

    engine = GlassBox.load(path, int8=options.int8, compile=options.compile)
    engine.name = name  # clients never see a path of this machine
    served = ServedModel(
        model_info(name, engine), engine, _separate_modules(engine), _separate_modules(engine)
    )
    model = engine.optimized
    if isinstance(model, Decoder) and isinstance(model.config.output, NextToken):
        tokenizer = engine.tokenizer
        scheduler = Scheduler(
            model,
            tokenizer.vocab_size,
            options.cache_tokens,
            options.prefix_cache_tokens,
            tokenizer=tokenizer,
        )
        served.workloads["generate"] = GenerationWorkload(send, scheduler)
        served.workloads["score"] = ScoringWorkload(send, model, tokenizer.vocab_size)
    elif isinstance(model, Encoder):
        served.workloads["encode"] = EncoderWorkload(send, engine)
    elif isinstance(model, Translator):
        served.workloads["translate"] = TranslationWorkload(send, engine)
    served.workloads["call"] = CallWorkload(send, weight=1.0)
    return served


def _separate_modules(engine: GlassBox) -> GlassBox:
    """The same model with module objects of its own, whose weights are the same tensors.

    Its layers are pause points of cooperative calls.
    """
    from dataclasses import replace

    from qkv.interpret import GlassBox
    from qkv.serve.cooperative import pause_point

    model = engine.model
    shared = {id(tensor): tensor for tensor in (*model.parameters(), *model.buffers())}
    separate: Model = copy.deepcopy(model, memo=dict(shared))
    for name, module in separate.named_modules():
        if name.rpartition(".")[2].isdecimal():  # a layer
            module.register_forward_pre_hook(pause_point)
    box = GlassBox(replace(engine.bundle, model=separate), engine.name, compile=engine.compile)
    box.__dict__["optimized"] = engine.optimized  # what serves is what a trace is compared with
    return box


def model_info(name: str, engine: GlassBox) -> ModelInfo:
    """The description of a loaded model."""
    from qkv.engine import labels_of, purpose_of
    from qkv.model import Classify, Decoder, Encoder, EncoderOnly, Stack, Translator

    model = engine.model
    config = model.config
    tokenizer = engine.tokenizer
    task = "embed"
    if isinstance(model, Decoder):
        task = "generate"
    elif isinstance(model, Translator):
        task = "translate"
    elif isinstance(config.output, Classify):
        task = "classify"
    stack = getattr(config, "decoder", None) or getattr(config, "encoder", None)
    assert isinstance(stack, Stack)
    labels: list[str] = []
    if isinstance(model, Encoder) and isinstance(config.output, Classify):
        labels = list(labels_of(model))
    tensors = {id(t): t.nbytes for t in (*model.parameters(), *model.buffers())}
    special_tokens = dict(vars(tokenizer.special_tokens))
    return ModelInfo(
        name=name,
        task=task,
        description=purpose_of(model).description,
        parameters=config.parameters(),
        bytes=sum(tensors.values()),
        context_length=config.context_length
        if isinstance(config, EncoderOnly)
        else _context_length(engine),
        vocab_size=tokenizer.vocab_size,
        width=stack.width,
        layers=stack.layers,
        heads=stack.attention.heads,
        labels=labels,
        sha256=engine.about["sha256"],
        tokenizer=None if tokenizer.has_language_pair else tokenizer.to_json(),
        special_tokens=special_tokens,
        warnings=list(engine.warnings),
    )


def _context_length(engine: GlassBox) -> int:
    from qkv.engine.generate import context_length
    from qkv.model import Decoder

    if isinstance(engine.model, Decoder):
        return context_length(engine.model)
    return int(engine.model.config.length)


def token_explainer(
    served: ServedModel, message: Generate
) -> Callable[[Any, int], dict[str, Any]] | None:
    from qkv.serve.calls import explain_token

    if not message.explain:
        return None
    box = served.token_box
    return lambda ids, token: explain_token(box, ids, token, message.explain, message.explain_top)
