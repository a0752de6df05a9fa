"""SentencePiece vocabularies ("llama"): pieces with scores, and bytes for what no piece spells.

They are joined in the order of their scores, as in llama.cpp, and only the normal ones: a file may
list them in any order, and among others that a text never holds.
"""

import math

from tokenizers import Tokenizer as Backend
from tokenizers import decoders, models, normalizers

from qkv.errors import BundleError
from qkv.gguf.facts import Facts
from qkv.gguf.vocabulary import PREFIX, Vocabulary
from qkv.text.pieces import joins
from qkv.text.sentencepiece import NORMAL, SPACE

BYTES = [f"<0x{byte:02X}>" for byte in range(256)]


def piece_backend(facts: Facts, vocabulary: Vocabulary) -> Backend:
    """Spaces are pieces of their own kind, "▁"; a text is read as if a space came before it."""
    ids = vocabulary.ids()
    unknown = vocabulary.marks["unknown"]
    model = models.BPE(
        ids,
        _joins(facts, vocabulary),
        unk_token=None if unknown is None else vocabulary.tokens[unknown],
        fuse_unk=True,
        byte_fallback=all(byte in ids for byte in BYTES),
    )
    backend = Backend(model)
    spaces: list[normalizers.Normalizer] = [normalizers.Replace(" ", SPACE)]
    words: list[decoders.Decoder] = [
        decoders.Replace(SPACE, " "),
        decoders.ByteFallback(),
        decoders.Fuse(),
    ]
    if facts.flag(f"{PREFIX}.add_space_prefix", True):
        spaces.insert(0, normalizers.Prepend(SPACE))
        words.append(decoders.Strip(" ", 1, 0))
    backend.normalizer = normalizers.Sequence(spaces)
    backend.decoder = decoders.Sequence(words)
    return backend


def _joins(facts: Facts, vocabulary: Vocabulary) -> list[tuple[str, str]]:
    scores = facts.each(f"{PREFIX}.scores", float)
    if len(scores) != len(vocabulary.tokens) or not all(map(math.isfinite, scores)):
        raise BundleError(
            f"{facts.path} has {len(vocabulary.tokens)} tokens and {len(scores)} scores; expected "
            "one finite score for each"
        )
    score = dict(zip(vocabulary.tokens, scores, strict=True))
    normal = {token: score[token] for token in vocabulary.of_sort(NORMAL)}
    ranked = sorted(normal, key=lambda token: -normal[token])
    return joins(facts.path, ranked, normal, BundleError)
