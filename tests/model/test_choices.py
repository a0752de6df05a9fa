"""What a config promises: it survives JSON, counts itself, refuses nonsense, and builds."""

import json
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from tests.model.odd_models import ALL, DECODERS, ENCODERS, GROUPED, TABLE, TRANSLATORS, VOCABULARY
from tests.model.odd_models import decoder as odd_decoder
from tests.model.odd_models import stack as odd_stack
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from qkv.attention import AttentionSteps
from qkv.errors import CacheError, ConfigError, ShapeError, UsageError
from qkv.model import (
    BlockDiagonalAttention,
    Classify,
    Config,
    DecoderOnly,
    Embedding,
    EncoderDecoder,
    EncoderOnly,
    First,
    Last,
    Learned,
    Llama3Scaling,
    Max,
    Mean,
    ModelConfig,
    MultiHead,
    NextToken,
    NtkScaling,
    PreNorm,
    RelativeBuckets,
    Rope,
    Sinusoidal,
    TextVector,
    build,
    preset,
    presets,
    read_config,
    skeleton,
)

B, T, S = 4, 17, 11

PRESETS = pytest.mark.parametrize("name", presets())
ODD = pytest.mark.parametrize("name", ALL)


def ids(rows: int, columns: int, below: int, seed: int = 7) -> Tensor:
    return torch.randint(below, (rows, columns), generator=torch.Generator().manual_seed(seed))


def inputs(config: ModelConfig) -> dict[str, Tensor]:
    """Full and nearly empty texts, each with at least one word, for a model of any family."""
    text, lengths = ids(B, T, VOCABULARY), torch.tensor([T, 9, 2, 1])
    if not isinstance(config, EncoderDecoder):
        return {"ids": text, "lengths": lengths}
    source = ids(B, S, (config.source or config.embedding).vocabulary, seed=11)
    return {
        "source": source,
        "target": text,
        "source_lengths": torch.tensor([2, S, 1, 5]),
        "target_lengths": lengths,
    }


def numel(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


# --- JSON ---


@PRESETS
def test_a_preset_survives_json(name: str):
    config = preset(name)
    assert read_config(config.model_dump_json()) == config
    assert read_config(json.dumps(config.model_dump())) == config


@ODD
def test_every_choice_survives_json(name: str):
    assert read_config(ALL[name].model_dump_json()) == ALL[name]


# --- how many parameters ---


@PRESETS
def test_a_preset_counts_what_it_builds(name: str):
    config = preset(name)
    assert numel(skeleton(config)) == config.parameters()


@ODD
def test_every_choice_counts_what_it_builds(name: str):
    assert numel(skeleton(ALL[name])) == ALL[name].parameters()


POOLER = 384 * 384 + 384  # published with MiniLM, unused where the vector is a mean

PUBLISHED = {
    "bert-base": 109_482_240,
    "gpt2": 124_439_808,
    "t5-small": 60_506_624,
    "smollm-135m": 134_515_008,
    "llama-15m": 15_191_712,
    "minilm-l6": 22_713_216 - POOLER,
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_published_model_has_its_published_size(name: str):
    assert preset(name).parameters() == PUBLISHED[name]


# Table 3 of the paper, in millions. It does not state the exact size of its shared vocabulary
# ("about 37000 tokens"), of which each thousand is half a million numbers in the base model.
@pytest.mark.parametrize(("name", "millions"), [("paper-base", 65), ("paper-big", 213)])
def test_the_papers_models_are_near_their_published_sizes(name: str, millions: int):
    assert preset(name).parameters() == pytest.approx(millions * 1e6, rel=0.04)


@pytest.mark.parametrize(("D", "h"), [(30, 6), (35, 5), (77, 7), (13, 1)])
def test_sliced_heads_have_three_d_squared_over_h_parameters(D: int, h: int):
    choice = BlockDiagonalAttention(heads=h)
    assert choice.parameters(D) == 3 * D * D // h
    assert numel(choice.build(D)) == 3 * D * D // h


@pytest.mark.parametrize(("D", "r"), [(30, 7), (35, 2), (13, 13)])
def test_a_factored_value_has_two_r_d_parameters(D: int, r: int):
    choice = MultiHead(heads=1, value_width=D, value_rank=r, bias=False, output_bias=False)
    assert numel(choice.build(D).value) == 2 * r * D
    assert choice.parameters(D) == numel(choice.build(D)) == 3 * D * D + 2 * r * D


@pytest.mark.parametrize(("D", "h"), [(30, 6), (35, 5), (13, 1)])
def test_the_papers_heads_have_four_d_squared_parameters(D: int, h: int):
    choice = MultiHead(heads=h, bias=False, output_bias=False)
    assert choice.parameters(D) == 4 * D * D
    assert numel(choice.build(D)) == 4 * D * D


# --- what cannot be built ---

ODD_HEADS = {"attention": MultiHead(heads=6, head_width=5), "position": Rope()}
NOT_A_PAIR = {"attention": GROUPED, "position": Rope(fraction=0.5)}
ONE_PAIR = {
    "attention": MultiHead(heads=6, head_width=2),
    "position": Rope(scaling=NtkScaling(factor=2)),
}

REFUSED: dict[str, tuple[Callable[[], object], list[str]]] = {
    "heads that do not divide the width": (
        lambda: odd_stack(width=250, attention=MultiHead(heads=4)),
        ["heads=4", "width=250", "248", "252"],
    ),
    "slices that do not divide the width": (
        lambda: odd_stack(width=31, attention=BlockDiagonalAttention(heads=6)),
        ["heads=6", "width=31", "30", "36"],
    ),
    "more heads than width": (
        lambda: odd_stack(width=3, attention=MultiHead(heads=7)),
        ["heads=7", "width=3", "nearest widths: 7"],
    ),
    "key/value heads that do not divide the heads": (
        lambda: odd_stack(attention=MultiHead(heads=6, kv_heads=4)),
        ["kv_heads=4", "heads=6"],
    ),
    "an unknown preset": (lambda: preset("gpt-2"), ["gpt-2", 'did you mean "gpt2"?']),
    "a preset like none": (lambda: preset("zzz"), ["zzz", *presets()]),
    "an unknown field": (lambda: MultiHead(heads=6, headz=5), ["MultiHead", "headz"]),
    "no heads": (lambda: MultiHead(heads=0), ["heads=0", "1"]),
    "no layers": (lambda: odd_stack(layers=0), ["layers=0", "1"]),
    "a missing field": (lambda: MultiHead(), ["MultiHead.heads", "required"]),
    "everything dropped": (lambda: odd_stack(dropout=1.0), ["dropout=1.0", "less than 1"]),
    "rotary on an odd head width": (lambda: odd_decoder(**ODD_HEADS), ["5", "even"]),
    "rotary on an odd share": (
        lambda: odd_decoder(**NOT_A_PAIR),
        ["fraction=0.5", "head_width=10", "even"],
    ),
    "a larger base for a single pair": (lambda: odd_decoder(**ONE_PAIR), ["2"]),
    "buckets that end before they grow": (
        lambda: RelativeBuckets(buckets=32, max_distance=16, bidirectional=False),
        ["max_distance=16", "buckets=32"],
    ),
    "wavelengths the wrong way round": (
        lambda: Llama3Scaling(factor=8, low_freq_factor=4, high_freq_factor=4, trained_length=64),
        ["low_freq_factor=4.0", "high_freq_factor=4.0"],
    ),
    "text for a number": (lambda: MultiHead(heads="4"), ["MultiHead.heads='4'", "integer"]),
    "a misspelt field that is needed": (
        lambda: MultiHead(heds=4),
        ["MultiHead.heds", 'did you mean "heads"?'],
    ),
    "a name instead of a config": (lambda: build("gpt2"), ['build(preset("gpt2"))']),
    "a yes where a config is needed": (
        lambda: MultiHead(heads=4, qk_norm=True),
        ["MultiHead.qk_norm=True", "a config is needed here"],
    ),
    "one choice in the place of another": (
        lambda: odd_stack(norm=PreNorm()),
        ["Stack.norm", 'unknown kind "pre_norm"'],
    ),
    "token types where nothing reads them": (
        lambda: DecoderOnly(
            length=T, embedding=Embedding(vocabulary=7, token_types=2), decoder=odd_stack()
        ),
        ["token_types=2", "encoder-only"],
    ),
    "an encoder wider than its decoder": (
        lambda: EncoderDecoder(
            length=T, embedding=TABLE, encoder=odd_stack(width=36), decoder=odd_stack(width=30)
        ),
        ["encoder.width=36", "decoder.width=30"],
    ),
    "one label": (lambda: Classify(labels=("same",)), ["two or more", "same"]),
    "two equal labels": (lambda: Classify(labels=("same", "same")), ["different", "same"]),
    "a kind of model that does not exist": (
        lambda: read_config('{"kind": "decoder_onyl"}'),
        ['unknown kind "decoder_onyl"; did you mean "decoder_only"?'],
    ),
    "what is not JSON": (lambda: read_config("width: 30"), ["JSON"]),
}


@pytest.mark.parametrize("what", REFUSED)
def test_it_refuses(what: str):
    attempt, words = REFUSED[what]
    with pytest.raises(ConfigError) as caught:
        attempt()
    said = str(caught.value)
    assert "\n" not in said
    for word in words:
        assert word in said


def test_a_config_from_a_file_is_refused_with_the_same_numbers():
    config = DECODERS["gpt"].model_dump()
    config["decoder"]["width"] = 31
    with pytest.raises(ConfigError, match=r"heads=6 must divide width=31; nearest widths: 30, 36"):
        read_config(json.dumps(config))


def test_a_text_longer_than_a_learned_table_is_refused():
    model = build(odd_decoder(position=Learned(offset=2)))
    model(ids(B, 23, VOCABULARY))
    with pytest.raises(ShapeError, match=r"24\b.* 23\b"):
        model(ids(B, 24, VOCABULARY))


@torch.no_grad()
def test_a_cache_does_not_reach_beyond_a_learned_table():
    model = build(odd_decoder(position=Learned()))
    cache = model.empty_cache(B, capacity=29)
    model(ids(B, 19, VOCABULARY), cache=cache)
    with pytest.raises(ShapeError, match=r"24\b.* 23\b"):
        model(ids(B, 5, VOCABULARY), cache=cache)


@pytest.mark.parametrize(
    ("lengths", "said"),
    [
        (torch.tensor([9, 7]), "length 9 does not fit into 7 positions"),
        (torch.tensor([-1, 7]), "length -1 does not fit into 7 positions"),
        (torch.tensor([7]), r"one integer for each of 2 texts"),
        (torch.tensor([7.0, 7.0]), r"one integer for each of 2 texts"),
    ],
)
def test_lengths_that_cannot_be_are_refused_by_every_family(lengths: Tensor, said: str):
    text = ids(2, 7, VOCABULARY)
    translator = build(next(iter(TRANSLATORS.values())))
    for model in (build(next(iter(ENCODERS.values()))), build(odd_decoder())):
        with pytest.raises(ShapeError, match=said):
            model(text, lengths)
    with pytest.raises(ShapeError, match=said):
        translator(text, text, source_lengths=lengths)
    with pytest.raises(ShapeError, match=said):
        translator(text, text, target_lengths=lengths)


@torch.no_grad()
def test_lengths_and_a_cache_are_refused_together():
    model = build(odd_decoder())
    cache = model.empty_cache(2, 9)
    with pytest.raises(CacheError, match=r"give mask=Mask.padding\(lengths\)"):
        model(ids(2, 3, VOCABULARY), torch.tensor([3, 1]), cache=cache)


@torch.no_grad()
def test_a_cache_of_another_depth_is_refused_with_both_numbers():
    model = build(odd_decoder(layers=3))
    cache = build(odd_decoder(layers=2)).empty_cache(2, 9)
    with pytest.raises(CacheError, match="the cache has 2 layers, the model 3"):
        model(ids(2, 3, VOCABULARY), cache=cache)


def test_an_empty_capacity_is_not_the_whole_length():
    assert build(odd_decoder()).empty_cache(2, 0).layers[0].capacity == 0


@pytest.mark.parametrize("wrong", [torch.zeros(3, 5), torch.zeros(5, dtype=torch.long)])
def test_what_is_no_batch_of_token_ids_is_refused(wrong: Tensor):
    with pytest.raises(ShapeError, match=r"integers of shape \(B, T\)"):
        build(odd_decoder())(wrong)


def test_positions_for_another_length_are_refused():
    with pytest.raises(ShapeError, match="4 positions are given for 5 tokens"):
        build(odd_decoder())(ids(2, 5, VOCABULARY), positions=torch.arange(4))


@pytest.mark.parametrize("device", ["gpu", "warp:0"])
def test_a_device_that_does_not_exist_is_refused(device: str):
    with pytest.raises(UsageError, match="unknown device"):
        build(odd_decoder(), device=device)


def test_a_token_outside_the_vocabulary_is_refused_with_the_numbers():
    model = build(odd_decoder())
    with pytest.raises(ShapeError, match=rf"0 to {VOCABULARY - 1}, but these from {VOCABULARY}"):
        model(torch.full((2, 3), VOCABULARY))


@pytest.mark.parametrize("pooling", [Mean(), First(), Last(), Max()])
def test_the_vector_of_an_empty_text_is_zeros(pooling: Config):
    config = EncoderOnly(
        length=T, embedding=TABLE, encoder=odd_stack(), output=TextVector(pooling=pooling)
    )
    for width, lengths in ((0, None), (5, torch.tensor([0, 0]))):
        assert (build(config)(torch.zeros(2, width, dtype=torch.long), lengths) == 0).all()


def test_waves_have_no_longest_text():
    model = build(odd_decoder(position=Sinusoidal()))
    assert model(ids(B, 24, VOCABULARY)).isfinite().all()


# --- shared tables ---

UNREAD = VOCABULARY - 1  # a token that stands in no text here


def tables_of(model: nn.Module) -> list[str]:
    return [name for name, t in model.state_dict().items() if t.shape[0] == VOCABULARY]


def changed_columns(before: Tensor, after: Tensor) -> list[int]:
    return (before != after).flatten(0, -2).any(dim=0).nonzero().flatten().tolist()


@torch.no_grad()
def test_a_tied_table_is_read_at_both_ends():
    model, text = build(odd_decoder()), ids(B, T, UNREAD)
    assert tables_of(model) == ["embedding.weight"]

    before = model(text)
    model.embedding.weight[UNREAD] += 1.0
    assert changed_columns(before, model(text)) == [UNREAD]
    model.embedding.weight[text[0, 0]] += torch.linspace(-1.0, 1.0, 30)
    assert len(changed_columns(before, model(text))) == VOCABULARY


@torch.no_grad()
def test_an_untied_table_is_read_at_one_end():
    model, text = build(odd_decoder(output=NextToken(tied=False))), ids(B, T, UNREAD)
    assert tables_of(model) == ["embedding.weight", "output.weight"]

    before = model(text)
    model.embedding.weight[UNREAD] += 1.0
    assert torch.equal(before, model(text))
    model.output.weight[UNREAD] += 1.0
    assert changed_columns(before, model(text)) == [UNREAD]


@torch.no_grad()
def test_the_papers_table_is_read_in_three_places():
    model = build(TRANSLATORS["paper"])
    source, target = torch.full((B, S), 2), torch.full((B, T), 3)
    assert tables_of(model) == ["embedding.weight"]

    memory, before = model.encode(source), model(source, target)
    model.embedding.weight[UNREAD] += 1.0
    assert torch.equal(model.encode(source), memory)
    assert changed_columns(before, model(source, target)) == [UNREAD]

    before = model(source, target)
    model.embedding.weight[2] += torch.linspace(-1.0, 1.0, 30)
    assert not torch.equal(model.encode(source), memory)
    assert len(changed_columns(before, model(source, target))) == VOCABULARY

    memory, before = model.encode(source), model(source, target)
    model.embedding.weight[3] += torch.linspace(-1.0, 1.0, 30)
    assert torch.equal(model.encode(source), memory)
    assert len(changed_columns(before, model(source, target))) == VOCABULARY


@torch.no_grad()
def test_a_source_with_its_own_vocabulary_has_its_own_table():
    model = build(TRANSLATORS["two vocabularies"])
    source, target = ids(B, S, 19), ids(B, T, VOCABULARY)
    assert set(tables_of(model)) == {"embedding.weight", "output.weight", "output.bias"}
    assert model.source.weight.shape == (19, 30)

    memory = model.encode(source)
    model.embedding.weight += 1.0
    assert torch.equal(model.encode(source), memory)
    model.source.weight *= 2.0
    assert not torch.equal(model.encode(source), memory)
    assert model(source, target).shape == (B, T, VOCABULARY)


@ODD
def test_no_weight_is_kept_twice(name: str):
    state = build(ALL[name]).state_dict()
    assert len({tensor.data_ptr() for tensor in state.values()}) == len(state)


# --- fresh weights ---


@ODD
def test_the_same_seed_gives_the_same_weights(name: str):
    first, again, other = (build(ALL[name], seed).state_dict() for seed in (5, 5, 6))
    assert list(first) == list(again)
    assert all(torch.equal(first[name], again[name]) for name in first)
    drawn = [name for name in first if first[name].dim() > 1]
    assert not any(torch.equal(first[name], other[name]) for name in drawn)


@ODD
def test_every_parameter_gets_a_gradient(name: str):
    config = ALL[name]
    model = build(config, seed=5).eval()
    answer = model(**inputs(config))
    answer.backward(torch.randn(answer.shape, generator=torch.Generator().manual_seed(3)))
    for parameter_name, parameter in model.named_parameters():
        assert parameter.grad is not None, parameter_name
        assert parameter.grad.isfinite().all(), parameter_name
        if not parameter_name.endswith("key.bias"):  # it moves a whole row: softmax cannot tell
            assert parameter.grad.abs().max() > 0, parameter_name


# --- watching ---


class FusedCalls(TorchFunctionMode):
    """Counts how often torch's fused kernel runs."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_function__(self, func, types, args=(), kwargs=None):
        self.count += func is F.scaled_dot_product_attention
        return func(*args, **(kwargs or {}))


def fused_calls(run: Callable[[], Tensor]) -> tuple[Tensor, int]:
    with FusedCalls() as calls:
        out = run()
    return out, calls.count


def taps(model: nn.Module) -> dict[str, nn.Module]:
    return {name: m for name, m in model.named_modules() if name.endswith("core.hook_point")}


def fused_attentions(config: ModelConfig) -> int:
    """How often a forward pass calls the fused kernel: a cap has a kernel of its own."""
    stacks = [getattr(config, name, None) for name in ("encoder", "decoder", "decoder")]
    if not isinstance(config, EncoderDecoder):
        stacks.pop()  # only a translator's decoder attends twice
    used = [stack for stack in stacks if stack is not None]
    return sum(s.layers for s in used if getattr(s.attention, "cap", None) is None)


@ODD
@torch.no_grad()
def test_watching_changes_nothing_and_shows_weights_that_sum_to_one(name: str):
    config = ALL[name]
    model = build(config, seed=5).eval()
    seen: dict[str, AttentionSteps] = {}
    plain, fused = fused_calls(lambda: model(**inputs(config)))
    assert fused == fused_attentions(config)

    hooks = [
        tap.register_forward_hook(lambda m, args, steps, name=name: seen.update({name: steps}))
        for name, tap in taps(model).items()
    ]
    watched, fused = fused_calls(lambda: model(**inputs(config)))
    assert fused == 0
    assert seen.keys() == taps(model).keys()
    torch.testing.assert_close(watched, plain, rtol=1e-5, atol=1e-5)
    for steps in seen.values():  # behind a text's end, a window may hold nothing
        sums, sees = steps.weights.sum(dim=-1), (steps.masked > -torch.inf).any(dim=-1)
        torch.testing.assert_close(sums, sees.float(), rtol=0, atol=1e-6)

    for hook in hooks:
        hook.remove()
    again, fused = fused_calls(lambda: model(**inputs(config)))
    assert fused == fused_attentions(config)
    assert torch.equal(again, plain)


@torch.no_grad()
def test_only_the_watched_layer_leaves_the_fused_kernel():
    config = TRANSLATORS["paper"]
    model = build(config).eval()
    model.decoder.get_submodule("1.cross.core.hook_point").register_forward_hook(lambda *_: None)
    _, fused = fused_calls(lambda: model(**inputs(config)))
    assert fused == len(taps(model)) - 1 == 5


@torch.no_grad()
def test_a_watched_text_of_no_words_has_weights_of_zero():
    config = ENCODERS["mean vector"]
    model, seen = build(config).eval(), []
    model.encoder.get_submodule("0.attention.core.hook_point").register_forward_hook(
        lambda module, args, steps: seen.append(steps)
    )
    vectors = model(ids(2, T, VOCABULARY), torch.tensor([0, T]))
    sums = seen[0].weights.sum(dim=-1)  # (B, H, T)
    assert torch.equal(sums[0], torch.zeros_like(sums[0]))
    torch.testing.assert_close(sums[1], torch.ones_like(sums[1]))
    assert torch.equal(vectors[0], torch.zeros(30))


def test_a_hook_may_put_other_steps_in_their_place():
    config = odd_decoder(table=Embedding(vocabulary=VOCABULARY, scaled=True))
    model, text = build(config).eval(), ids(B, T, VOCABULARY)

    def silence(
        module: nn.Module, args: tuple[AttentionSteps], steps: AttentionSteps
    ) -> AttentionSteps:
        return AttentionSteps(
            steps.scores, steps.scaled, steps.capped, steps.masked, steps.weights, steps.output * 0
        )

    model.decoder.get_submodule("0.attention.core.hook_point").register_forward_hook(silence)
    silenced = model(text)
    with torch.no_grad():
        model.decoder.get_submodule("0.attention.output").weight.zero_()
    torch.testing.assert_close(silenced, model(text))
