"""Unigram: of all frequent substrings, those that make the text most likely (Kudo 2018)."""

import json
from collections.abc import Iterable

from tokenizers import Tokenizer as Backend
from tokenizers import decoders, models, pre_tokenizers, trainers

from qkv.text.alphabet import SPECIAL, UNKNOWN
from qkv.text.words import WORDS, count_characters, count_words, most_frequent, repeated

DIGITS = 6  # of a score, far above the noise in the library's sums


def unigram(texts: Iterable[str], vocabulary: int) -> Backend:
    """A space is "▁" in a piece; if there is no room for all characters the rarest are unknown."""
    backend = Backend(models.Unigram())
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(WORDS, "isolated"),
            pre_tokenizers.Metaspace(prepend_scheme="never", split=False),
        ]
    )
    backend.decoder = decoders.Metaspace(prepend_scheme="never", split=False)

    words = count_words(backend, texts)
    characters = count_characters(words)
    known = most_frequent(characters, vocabulary - len(SPECIAL))
    rare = dict.fromkeys(map(ord, characters.keys() - known))
    trainer = trainers.UnigramTrainer(
        vocab_size=vocabulary,
        special_tokens=list(SPECIAL),
        unk_token=UNKNOWN,
        show_progress=False,
    )
    trained = Backend(models.Unigram())
    trained.train_from_iterator((word.translate(rare) for word in repeated(words)), trainer)
    pieces = _steady(_pieces(trained), vocabulary - len(SPECIAL))
    special = [(token, 0.0) for token in SPECIAL]
    backend.model = models.Unigram([*special, *pieces], unk_id=SPECIAL.index(UNKNOWN))
    return backend


def _steady(scores: dict[str, float], room: int) -> list[tuple[str, float]]:
    """The best pieces, best first, and all single characters, the same in every run.

    The library sums in the order of a random hash, which shows in the last bits of a score. It
    also gives characters that its pieces made superfluous the lowest score plus 0.0001 for each
    one before, again in random order; here all of them get the lowest.
    """
    floor = min(scores.values())
    ladder = floor + 0.0001 * (1 + sum(len(piece) == 1 for piece in scores))
    for piece, score in scores.items():
        low = len(piece) == 1 and score < ladder
        scores[piece] = round(floor if low else score, DIGITS)
    by_score = sorted(scores, key=lambda piece: (-scores[piece], piece))
    by_need = sorted(by_score, key=lambda piece: len(piece) > 1)  # the sort is stable
    kept = set(by_need[:room])
    return [(piece, scores[piece]) for piece in by_score if piece in kept]


def _pieces(trained: Backend) -> dict[str, float]:
    """What was learned, with scores, which the library shows only in its JSON."""
    pieces = json.loads(trained.to_str())["model"]["vocab"]
    # A text of nothing but NUL, the library's own end mark, has no scores.
    return {piece: score or 0.0 for piece, score in pieces if piece not in SPECIAL}
