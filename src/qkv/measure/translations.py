"""How close translations are to their references: BLEU and chrF as published figures have them.

The signatures say exactly what was computed. What copying the source would score is the baseline:
`score_translations(sources, references)`.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from qkv.errors import DataError


@dataclass(frozen=True)
class TranslationScores:
    """Both scores run from 0 to 100; a signature belongs beside each wherever it is quoted."""

    bleu: float
    chrf: float
    bleu_signature: str
    chrf_signature: str


def score_translations(guessed: Sequence[str], references: Sequence[str]) -> TranslationScores:
    """The scores of all translations together, each against its one reference, case counting."""
    if len(guessed) != len(references):
        raise DataError(
            f"{len(guessed)} translations but {len(references)} references; give one for each"
        )
    if not guessed:
        raise DataError("no translations to score; give at least one with its reference")
    from sacrebleu.metrics.bleu import BLEU
    from sacrebleu.metrics.chrf import CHRF

    # force: captions without capitals and full stops are no reason for a warning on the screen.
    bleu, chrf = BLEU(tokenize="13a", lowercase=False, force=True), CHRF()
    streams = [list(references)]
    return TranslationScores(
        bleu=float(bleu.corpus_score(list(guessed), streams).score),
        chrf=float(chrf.corpus_score(list(guessed), streams).score),
        bleu_signature=str(bleu.get_signature()),
        chrf_signature=str(chrf.get_signature()),
    )
