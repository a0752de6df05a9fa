"""Small models of odd sizes which, taken together, make every choice of the package."""

from collections.abc import Iterator

from qkv.model import (
    GEGLU,
    GELU,
    Alibi,
    BlockDiagonalAttention,
    Classify,
    Config,
    DecoderOnly,
    Embedding,
    EncoderDecoder,
    EncoderOnly,
    First,
    Last,
    LayerNorm,
    Learned,
    LinearScaling,
    Llama3Scaling,
    LocalAttention,
    MaskedToken,
    Max,
    Mean,
    ModelConfig,
    MultiHead,
    NextToken,
    NoPosition,
    NoScaling,
    NtkScaling,
    ParallelNorm,
    PostNorm,
    PreNorm,
    ReGLU,
    RelativeBuckets,
    ReLU,
    ReLU2,
    RMSNorm,
    Rope,
    SandwichNorm,
    SiLU,
    SingleResidualNorm,
    Sinusoidal,
    Stack,
    SwiGLU,
    TextVector,
    YarnScaling,
)

LENGTH, VOCABULARY, TYPES = 23, 41, 3
TABLE = Embedding(vocabulary=VOCABULARY)
TIED, UNSEEN = NextToken(), NoPosition()

# Every way to make heads: 6 of them, of width 5 unless a head width is given.
PAPER = MultiHead(heads=6)
BARE = MultiHead(heads=6, bias=False, output_bias=False)
GROUPED = MultiHead(heads=6, kv_heads=3, head_width=10, bias=False, output_bias=False)
ONE_FOR_ALL = MultiHead(heads=6, kv_heads=1, head_width=14, value_width=8)
NORMED = MultiHead(heads=6, kv_heads=2, head_width=10, value_width=9, qk_norm=RMSNorm())
FACTORED = MultiHead(heads=6, kv_heads=3, value_width=8, value_rank=7, qk_norm=LayerNorm())
UNSCALED = MultiHead(heads=6, bias=False, output_bias=False, scale=0.7)
SLICED = BlockDiagonalAttention(heads=6)


def stack(**given: object) -> Stack:
    usual = {
        "layers": 2,
        "width": 30,
        "attention": PAPER,
        "feed_forward": ReLU(width=37),
        "position": UNSEEN,
    }
    return Stack(**usual | given)


def encoder(output: object, table: Embedding = TABLE, **given: object) -> EncoderOnly:
    return EncoderOnly(length=LENGTH, embedding=table, encoder=stack(**given), output=output)


def decoder(table: Embedding = TABLE, output: object = TIED, **given: object) -> DecoderOnly:
    return DecoderOnly(length=LENGTH, embedding=table, decoder=stack(**given), output=output)


def translator(
    table: Embedding = TABLE,
    source: Embedding | None = None,
    output: NextToken = TIED,
    reads: object = UNSEEN,
    writes: object = UNSEEN,
    **given: object,
) -> EncoderDecoder:
    return EncoderDecoder(
        length=LENGTH,
        embedding=table,
        source=source,
        encoder=stack(position=reads, **given),
        decoder=stack(position=writes, **given),
        output=output,
    )


ENCODERS = {
    "bert": encoder(
        MaskedToken(),
        Embedding(vocabulary=VOCABULARY, token_types=TYPES),
        feed_forward=GELU(width=37),
        position=Learned(),
        norm=LayerNorm(eps=1e-12),
        norm_placement=PostNorm(),
        input_norm=LayerNorm(eps=1e-12),
        dropout=0.1,
    ),
    "masked token with a table of its own": encoder(
        MaskedToken(tied=False, norm=RMSNorm()),
        Embedding(vocabulary=VOCABULARY, scaled=True),
        position=Sinusoidal(),
    ),
    "next token": encoder(NextToken(tied=False, bias=True), position=Learned(offset=2)),
    "mean vector": encoder(TextVector(), attention=GROUPED, position=Rope(), norm=RMSNorm()),
    "first vector, dense": encoder(
        TextVector(pooling=First(), dense=True, normalize=False),
        attention=FACTORED,
        feed_forward=GEGLU(width=29, bias=True),
        position=Sinusoidal(interleaved=False, offset=2),
    ),
    "last vector": encoder(
        TextVector(pooling=Last()),
        attention=MultiHead(heads=10),
        position=Alibi(),
        norm=LayerNorm(bias=False),
    ),
    "largest vector": encoder(
        TextVector(pooling=Max(), dense=True),
        attention=ONE_FOR_ALL,
        feed_forward=ReLU2(width=31, bias=False),
        position=Rope(interleaved=True, fraction=0.72),
    ),
    "albert": encoder(
        MaskedToken(dense_width=13, activation="gelu_tanh"),
        Embedding(vocabulary=VOCABULARY, token_types=TYPES),
        layers=6,
        unique_layers=2,
        embedding_width=13,
        feed_forward=GELU(width=37, tanh=True),
        position=Learned(),
        norm_placement=PostNorm(),
        input_norm=LayerNorm(eps=1e-12),
    ),
    "modernbert": encoder(
        Classify(
            labels=("no", "yes", "so"),
            hidden=17,
            hidden_bias=False,
            activation="gelu",
            norm=LayerNorm(bias=False),
        ),
        layers=4,
        attention=GROUPED,
        feed_forward=GEGLU(width=29),
        position=Rope(base=160.0),
        norm=LayerNorm(bias=False),
        norm_placement=PreNorm(skip_first_norm=True),
        input_norm=LayerNorm(bias=False),
        local=LocalAttention(before=3, after=2, layers=(1, 2), position=Rope(base=10.0)),
    ),
    "masked token without biases": encoder(
        MaskedToken(bias=False, logit_bias=False, activation="relu"),
        feed_forward=SiLU(width=31),
        local=LocalAttention(before=2, after=4),
        position=Sinusoidal(),
    ),
    "classifier with relu": encoder(
        Classify(labels=("no", "yes"), hidden=30, activation="relu", pooling=Mean())
    ),
    "classifier": encoder(
        Classify(labels=("sad", "glad", "mad"), pooling=Mean()),
        attention=UNSCALED,
        position=RelativeBuckets(buckets=12, max_distance=9),
        norm=RMSNorm(eps=1e-5),
        input_norm=RMSNorm(),
    ),
    "classifier with a hidden layer": encoder(
        Classify(labels=("no", "yes"), pooling=First(), hidden=17, dropout=0.1),
        feed_forward=SwiGLU(width=29),
    ),
    "notes": encoder(
        TextVector(pooling=Mean(), normalize=False),
        attention=SLICED,
        position=Sinusoidal(endpoint=True),
        norm_placement=SingleResidualNorm(),
    ),
    "notes without scaling": encoder(
        TextVector(pooling=Max(), normalize=False),
        attention=BlockDiagonalAttention(heads=5, scale=1.0),
        width=35,
        position=Sinusoidal(interleaved=False, endpoint=True, base=700.0),
        norm_placement=SingleResidualNorm(),
        norm=RMSNorm(),
    ),
}

DECODERS = {
    "gpt": decoder(feed_forward=GELU(width=37, tanh=True), position=Learned()),
    "llama": decoder(
        attention=GROUPED,
        feed_forward=SwiGLU(width=29),
        position=Rope(),
        norm=RMSNorm(eps=1e-5),
    ),
    "llama 3": decoder(
        attention=GROUPED,
        position=Rope(
            base=50.0,
            scaling=Llama3Scaling(
                factor=8.0, low_freq_factor=0.5, high_freq_factor=2.0, trained_length=29
            ),
        ),
        output=NextToken(tied=False, multiplier=0.3),
    ),
    "neox": decoder(
        feed_forward=GELU(width=37),
        attention=NORMED,
        position=Rope(fraction=0.6),
        norm_placement=ParallelNorm(),
        output=NextToken(tied=False),
    ),
    "gemma": decoder(
        Embedding(vocabulary=VOCABULARY, scaled=True),
        output=NextToken(cap=1.5),
        layers=3,
        attention=MultiHead(
            heads=6,
            kv_heads=2,
            head_width=10,
            bias=False,
            output_bias=False,
            scale=0.5,
            cap=0.9,
            qk_norm=RMSNorm(unit_offset=True),
        ),
        feed_forward=GEGLU(width=29, tanh=True),
        position=Rope(),
        norm=RMSNorm(unit_offset=True),
        norm_placement=SandwichNorm(),
        local=LocalAttention(before=4, layers=(0, 2)),
    ),
    "yarn": decoder(
        attention=GROUPED,
        position=Rope(
            base=50.0,
            scaling=YarnScaling(factor=4.0, beta_fast=3.0, beta_slow=0.5, trained_length=31),
        ),
    ),
    "yarn of a given length": decoder(
        attention=GROUPED,
        position=Rope(scaling=YarnScaling(factor=4.0, trained_length=31, attention_factor=1.3)),
        local=LocalAttention(before=3, position=Rope(scaling=NoScaling())),
    ),
    "rotary, linear": decoder(
        attention=NORMED,
        position=Rope(scaling=LinearScaling(factor=3.0)),
        norm_placement=PostNorm(),
    ),
    "rotary, larger base": decoder(
        attention=ONE_FOR_ALL,
        position=Rope(interleaved=True, base=500.0, scaling=NtkScaling(factor=5.0)),
    ),
    "rotary, in part": decoder(
        attention=NORMED,
        feed_forward=ReLU2(width=31),
        position=Rope(fraction=0.4),
        norm=RMSNorm(),
    ),
    "alibi": decoder(attention=PAPER, position=Alibi(), output=NextToken(bias=True)),
    "alibi, nine heads": decoder(
        attention=MultiHead(heads=9), width=27, position=Alibi(), layers=1
    ),
    "relative": decoder(
        attention=UNSCALED,
        feed_forward=ReGLU(width=29),
        position=RelativeBuckets(buckets=7, max_distance=10, bidirectional=False),
        norm=RMSNorm(),
    ),
    "waves of odd width": decoder(
        attention=MultiHead(heads=5),
        width=35,
        position=Sinusoidal(offset=1),
        table=Embedding(vocabulary=VOCABULARY, scaled=True),
    ),
    "no positions": decoder(layers=3, attention=FACTORED, input_norm=LayerNorm()),
    "notes": decoder(
        attention=SLICED,
        norm_placement=SingleResidualNorm(),
        position=Sinusoidal(interleaved=False, offset=-3),
    ),
    "last vector": decoder(
        output=TextVector(pooling=Last()), attention=FACTORED, position=Learned(offset=3)
    ),
    "classifier": decoder(output=Classify(labels=("no", "yes"), pooling=Last()), attention=BARE),
}

TRANSLATORS = {
    "paper": translator(
        Embedding(vocabulary=VOCABULARY, scaled=True),
        attention=BARE,
        reads=Sinusoidal(),
        writes=Sinusoidal(),
        norm_placement=PostNorm(),
    ),
    "t5": translator(
        attention=MultiHead(heads=6, head_width=7, bias=False, output_bias=False, scale=1.0),
        feed_forward=ReLU(width=37, bias=False),
        reads=RelativeBuckets(buckets=14, max_distance=11, bidirectional=True),
        writes=RelativeBuckets(buckets=9, max_distance=11, bidirectional=False),
        norm=RMSNorm(),
        output=NextToken(multiplier=30**-0.5),
    ),
    "two vocabularies": translator(
        source=Embedding(vocabulary=19, scaled=True),
        attention=NORMED,
        reads=Learned(),
        writes=Rope(),
        output=NextToken(tied=False, bias=True),
    ),
    "factored": translator(
        attention=FACTORED,
        feed_forward=SwiGLU(width=29, bias=True),
        reads=Alibi(),
        writes=Sinusoidal(interleaved=False),
        norm=LayerNorm(bias=False),
        norm_placement=PreNorm(),
        input_norm=LayerNorm(),
    ),
    "sandwich": translator(
        attention=PAPER,
        feed_forward=SiLU(width=31),
        reads=Sinusoidal(interleaved=False),
        writes=Learned(offset=2),
        norm_placement=SandwichNorm(),
        output=NextToken(bias=True, cap=2.0),
        layers=4,
        unique_layers=2,
    ),
    "notes": translator(
        attention=SLICED, norm_placement=SingleResidualNorm(), writes=Learned(offset=2)
    ),
}

ALL: dict[str, ModelConfig] = {
    f"{family}: {name}": config
    for family, models in {
        "encoder": ENCODERS,
        "decoder": DECODERS,
        "translator": TRANSLATORS,
    }.items()
    for name, config in models.items()
}


def choices_in(choice: Config) -> Iterator[Config]:
    """That choice and every choice inside it."""
    yield choice
    for name in type(choice).model_fields:
        value = getattr(choice, name)
        if isinstance(value, Config):
            yield from choices_in(value)
