"""From what a person asks for to a whole recipe: good defaults for everything not said."""

from collections.abc import Sequence
from dataclasses import dataclass

from qkv.errors import UsageError, unknown
from qkv.model import DecoderOnly, Embedding, preset
from qkv.model.presets import SIZES
from qkv.text import Tokenizer
from qkv.train.language import evaluations, fingerprint, part_texts
from qkv.train.optimiser import AdamW, MuonAdamW
from qkv.train.recipe import Data, Recipe
from qkv.train.schedule import Cosine, Linear

TOKENS_A_STEP = 2048


@dataclass(frozen=True)
class Wish:
    """What the command line says."""

    size: str = "small"
    steps: int = 1000
    tokens: str = "bpe"
    vocabulary: int | None = None
    context: int | None = None
    batch: int | None = None
    optimiser: str = "muon"
    seed: int = 0


def plan_language(
    wish: Wish, documents: Sequence[str], files: Sequence[str]
) -> tuple[Recipe, Tokenizer]:
    """The recipe, and the tokenizer trained on the part that is not held out."""
    if wish.size not in SIZES:
        raise UsageError(unknown("size", wish.size, SIZES))
    config = preset(f"language-{wish.size}")
    assert isinstance(config, DecoderOnly)
    held_out = 0.1
    train, _ = part_texts(documents, held_out, wish.seed)
    ceiling = wish.vocabulary or config.embedding.vocabulary
    tokenizer = Tokenizer.train(wish.tokens, train, ceiling)
    length = wish.context or (128 if wish.tokens in ("characters", "bytes") else config.length)
    model = config.model_copy(
        update={"length": length, "embedding": Embedding(vocabulary=tokenizer.size)}
    )
    muon = wish.optimiser == "muon"
    recipe = Recipe(
        data=Data(
            files=tuple(files),
            sha256=fingerprint(documents),
            documents=len(documents),
            held_out=held_out,
        ),
        tokens=tokenizer.kind,
        model=model,
        optimiser=MuonAdamW() if muon else AdamW(),
        schedule=Linear() if muon else Cosine(),
        steps=wish.steps,
        batch=wish.batch or max(1, TOKENS_A_STEP // length),
        seed=wish.seed,
        evaluate_every=evaluations(wish.steps),
    )
    return recipe, tokenizer
