"""Why a decoder goes on with one token rather than another."""

from collections.abc import Sequence

import numpy as np

from qkv.engine.generate.prompting import Prompter
from qkv.engine.generate.reading import reach
from qkv.errors import UsageError
from qkv.explain.why.contrast import Contrast, scores_after
from qkv.explain.why.deletions import CIRCULAR, Deletions
from qkv.explain.why.faithfulness import DRAWS, SEED, Faithfulness, faithfulness
from qkv.explain.why.given import Likely, given_tokens
from qkv.explain.why.hiding import Removed
from qkv.explain.why.lens import logit_lens
from qkv.explain.why.named_token import named_token
from qkv.explain.why.token_reason import WAYS, TokenReason, TokenWord
from qkv.explain.why.words import Reading, read
from qkv.model import Decoder
from qkv.text import Tokenizer

LENS = "the guesses after earlier layers are a reading: only the last layer was trained to be read"
SLOPE = "a slope says what a small change would do, not what the word did as a whole"
NO_WORDS = "the prompt has no words, so no word is the reason"


def why_token(
    model: Decoder,
    tokenizer: Tokenizer,
    prompt: str,
    token: str | int | None = None,
    against: str | int | None = None,
    *,
    top: int = 5,
    draws: int = DRAWS,
    seed: int = SEED,
) -> TokenReason:
    """Why this token follows the prompt rather than that one.

    token: as it is shown or by its number; if not given, the likeliest. against: likewise; if not
    given, the likeliest other one. top: how many alternatives are named for each token.
    """
    if top < 1:
        raise UsageError(f"top={top} must be 1 or more")
    prompter = Prompter(model, tokenizer)  # refuses what does not write
    begin = tokenizer.before if prompt else prompter.ids("")
    seen = read(tokenizer, prompt, reach(model), before=begin, what="the prompt")
    scores = scores_after(model, [seen.ids], tokenizer.size)[0]
    this = _asked(tokenizer, token, scores, None)
    that = _asked(tokenizer, against, scores, this)
    if this == that:
        raise UsageError(f"token and against are both “{tokenizer.token(this)}”; name two")
    hiding = Removed(_nothing(tokenizer, seen))
    contrast = Contrast(model, seen, hiding, this, that)
    deletions = Deletions(contrast.without)
    words, marks = _by_words(contrast, deletions)
    shares = np.exp(scores - scores.max()) / np.exp(scores - scores.max()).sum()
    named, other = (Likely(tokenizer.token(id), id, float(shares[id])) for id in (this, that))
    given, following = given_tokens(model, tokenizer, seen.ids, top)
    return TokenReason(
        prompt=prompt,
        token=named,
        against=other,
        difference=float(scores[this] - scores[that]),
        given=given,
        following=following,
        layers=logit_lens(model, tokenizer, seen.ids, this),
        words=words,
        marks=marks,
        hidden=hiding.said,
        faithfulness=_tests(words, deletions, named, other, draws, seed),
        remarks=(LENS, SLOPE, CIRCULAR) if words else (LENS, NO_WORDS),
    )


def _by_words(
    contrast: Contrast, deletions: Deletions[float]
) -> tuple[tuple[TokenWord, ...], tuple[TokenWord, ...]]:
    slopes, seen, full = contrast.slopes(), contrast.prompt, deletions.full()

    def slope(at: Sequence[int]) -> float:
        return float(slopes[list(at)].sum())

    alone = deletions.one_by_one(len(seen.words))
    words = tuple(
        TokenWord(word, full - left, slope(word.at))
        for word, left in zip(seen.words, alone, strict=True)
    )
    return words, tuple(TokenWord(mark, None, slope(mark.at)) for mark in seen.marks)


def _tests(
    words: Sequence[TokenWord],
    deletions: Deletions[float],
    token: Likely,
    against: Likely,
    draws: int,
    seed: int,
) -> dict[str, Faithfulness]:
    answer = f"the log-odds of “{token.token}” against “{against.token}”"
    found = {}
    for way in WAYS:
        order = np.argsort([-getattr(word, way) for word in words], kind="stable").tolist()
        test = faithfulness(order, deletions, answer, draws, seed)
        if test is not None:
            found[way] = test
    return found


def _asked(
    tokenizer: Tokenizer, token: str | int | None, scores: np.ndarray, taken: int | None
) -> int:
    """The number of the token that is asked for: the named one, or the likeliest not taken."""
    if token is not None:
        return named_token(tokenizer, token)
    order = np.argsort(-scores, kind="stable").tolist()
    return next(int(id) for id in order if id != taken)


def _nothing(tokenizer: Tokenizer, seen: Reading) -> tuple[int, ...]:
    """What is read where every word is hidden and no mark stands before them."""
    if seen.marks:
        return ()
    ends = tokenizer.marks.end, tokenizer.marks.start, tokenizer.marks.unknown, tokenizer.marks.pad
    named = next((name for name in ends if name is not None), None)
    return (seen.ids[0] if named is None else tokenizer.id_of(named),)
