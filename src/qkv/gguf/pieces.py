"""SentencePiece vocabularies ("llama"): pieces with scores, and bytes for what no piece spells.

SentencePiece joins the two neighbours that make the piece of the highest score. `tokenizers`
joins by a list of pairs instead, so the list is made: each piece, best first, as every pair of
pieces that spells it.
"""

import math
from itertools import islice

from tokenizers import Tokenizer as Backend
from tokenizers import decoders, models, normalizers

from qkv.errors import BundleError
from qkv.gguf.cursor import MOST_VALUES, shown
from qkv.gguf.facts import Facts
from qkv.gguf.vocabulary import NORMAL, PREFIX, Vocabulary

SPACE = "▁"
LONGEST = 512  # characters of a piece; the work grows with the square
BYTES = [f"<0x{byte:02X}>" for byte in range(256)]


def piece_backend(facts: Facts, vocabulary: Vocabulary) -> Backend:
    """Spaces are pieces of their own kind, "▁"; a text is read as if a space came before it."""
    ids = vocabulary.ids()
    unknown = vocabulary.marks["unknown"]
    model = models.BPE(
        ids,
        joins(facts, vocabulary),
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


def joins(facts: Facts, vocabulary: Vocabulary) -> list[tuple[str, str]]:
    """Pairs of pieces that make a piece, in the order in which they are to be joined."""
    scores = facts.each(f"{PREFIX}.scores", float)
    if len(scores) != len(vocabulary.tokens) or not all(map(math.isfinite, scores)):
        raise BundleError(
            f"{facts.path} has {len(vocabulary.tokens)} tokens and {len(scores)} scores; expected "
            "one finite score for each"
        )
    ranked = sorted(zip(scores, vocabulary.tokens, strict=True), key=lambda it: -it[0])
    known = set(vocabulary.of_sort(NORMAL))
    longest = max(known, key=len, default="")
    if len(longest) > LONGEST:
        raise BundleError(
            f"{facts.path}: the token {shown(longest)} has {len(longest)} characters; no "
            f"vocabulary needs more than {LONGEST}, so it is damaged"
        )
    pairs = (
        (piece[:cut], piece[cut:])
        for _, piece in ranked
        if piece in known
        for cut in range(1, len(piece))
        if piece[:cut] in known and piece[cut:] in known
    )
    found = list(islice(pairs, MOST_VALUES + 1))
    if len(found) > MOST_VALUES:
        raise BundleError(
            f"{facts.path}: its tokens can be joined in more than {MOST_VALUES} ways; it is damaged"
        )
    return found
