"""Why a decoder goes on with one token rather than another."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from qkv.attention import Mask
from qkv.engine.batching import inference
from qkv.engine.generate.request import Prompter, context_length, last_token_logits
from qkv.errors import UsageError
from qkv.interpret.attribution.faithfulness import DRAWS, SEED, Faithfulness, Words, faithfulness
from qkv.interpret.attribution.gradients import gradient_times_input, gradients_enabled
from qkv.interpret.attribution.occlusion import CIRCULAR, DeletionCache, Removed
from qkv.interpret.attribution.readouts import (
    LayerReadout,
    PromptToken,
    TokenProb,
    logit_lens,
    resolve_token,
    score_prompt,
)
from qkv.interpret.attribution.words import Piece, Reading, read
from qkv.model import Decoder
from qkv.text import Tokenizer

# FOLDED explain/why/contrast: Why this token rather than that one: the words of a prompt that
#   set the two apart.
#
#   Asked of one token alone, an explanation mostly finds what makes any token likely; asked
#   of the
#   difference of two it finds what decides between them (Yin and Neubig 2022, "Interpreting
#   Language
#   Models with Contrastive Explanations"). The difference of their scores is log p(this) ÷
#   p(that).
# FOLDED explain/why/token_reason: What is said of a token: what else could have come, how it
#   came up, and which words decided.

TOKENS = 4096  # that are read at a time


@dataclass(frozen=True)
class Contrast:
    """Two tokens that might follow a prompt: `token` rather than `against`."""

    model: Decoder
    prompt: Reading
    hiding: Removed
    token: int
    against: int

    def without(self, sets: list[Words]) -> list[float]:
        """The difference of the two scores when these words are hidden, for each set."""
        texts = [self.hiding.without(self.prompt.ids, self.prompt.places(words)) for words in sets]
        scores = next_token_logits(self.model, texts, 1 + max(self.token, self.against))
        return [float(row[self.token] - row[self.against]) for row in scores]

    def slopes(self) -> NDArray[np.float64]:
        """The difference's slope in each position of the prompt times its embedding, (T,)."""
        model = self.model
        with gradients_enabled(model):
            ids = torch.tensor([self.prompt.ids], device=model.embedding.weight.device)
            return gradient_times_input(self.difference, model.embedding(ids)[0].detach())

    def difference(self, x: Tensor) -> Tensor:
        """From embeddings (B, T, D) to the difference of the two scores after the last, (B,)."""
        states = self.model.decoder(x, Mask.causal())
        scores = last_token_logits(self.model, states, 1 + max(self.token, self.against)).double()
        return scores[:, self.token] - scores[:, self.against]


def next_token_logits(
    model: Decoder, texts: Sequence[Sequence[int]], vocabulary: int
) -> NDArray[np.float64]:
    """The scores of the token that follows each text, (N, V); texts of like length go together."""
    lengths = np.array([len(text) for text in texts])
    found = np.zeros((len(texts), vocabulary))
    rest = np.argsort(-lengths, kind="stable")
    with inference(model):
        while len(rest):
            batch, rest = np.split(rest, [max(1, TOKENS // int(lengths[rest[0]]))])
            ids = torch.zeros(len(batch), int(lengths[batch[0]]), dtype=torch.long)
            for row, at in zip(ids, batch, strict=True):
                row[: lengths[at]] = torch.tensor(texts[at])
            states = model.states(ids.to(model.embedding.weight.device))  # none sees what follows
            last = states[torch.arange(len(batch)), torch.from_numpy(lengths[batch] - 1)]
            found[batch] = (
                last_token_logits(model, last[:, None], vocabulary).double().cpu().numpy()
            )
    return found


WAYS = ("occlusion", "gradient")  # to rank words


@dataclass(frozen=True)
class TokenWord:
    """What one word, or mark, does for a token against another."""

    word: Piece
    occlusion: float | None  # how far the difference of the scores falls without it; marks stay
    gradient: float  # the slope of the difference times the embedding

    def json(self) -> dict[str, object]:
        return {**self.word.json(), "occlusion": self.occlusion, "gradient": self.gradient}


@dataclass(frozen=True)
class TokenAttribution:
    """Why `token` follows the prompt rather than `against`.

    difference: of their scores, which is the logarithm of how many times likelier it is.
    """

    prompt: str
    token: TokenProb
    against: TokenProb
    difference: float
    prompt_tokens: tuple[PromptToken, ...]  # the tokens of the prompt
    next_tokens: tuple[TokenProb, ...]  # the likeliest to follow
    layers: tuple[LayerReadout, ...]
    words: tuple[TokenWord, ...]
    special_tokens: tuple[TokenWord, ...]
    occlusion_method: str
    faithfulness: dict[str, Faithfulness]
    remarks: tuple[str, ...]

    def json(self) -> dict[str, object]:
        return {
            "prompt": self.prompt,
            "token": self.token.json(),
            "against": self.against.json(),
            "difference": self.difference,
            "given": [token.json() for token in self.prompt_tokens],
            "following": [token.json() for token in self.next_tokens],
            "layers": [layer.json() for layer in self.layers],
            "words": [word.json() for word in self.words],
            "marks": [mark.json() for mark in self.special_tokens],
            "hidden": self.occlusion_method,
            "faithfulness": {way: test.json() for way, test in self.faithfulness.items()},
            "remarks": list(self.remarks),
        }


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
) -> TokenAttribution:
    """Why this token follows the prompt rather than that one.

    token: as it is shown or by its number; if not given, the likeliest. against: likewise; if not
    given, the likeliest other one. top: how many alternatives are named for each token.
    """
    if top < 1:
        raise UsageError(f"top={top} must be 1 or more")
    prompter = Prompter(model, tokenizer)  # refuses what does not write
    begin = tokenizer.prefix_ids if prompt else prompter.ids("")
    seen = read(tokenizer, prompt, context_length(model), before=begin, what="the prompt")
    scores = next_token_logits(model, [seen.ids], tokenizer.vocab_size)[0]
    this = _asked(tokenizer, token, scores, None)
    that = _asked(tokenizer, against, scores, this)
    if this == that:
        raise UsageError(f"token and against are both “{tokenizer.token(this)}”; name two")
    hiding = Removed(_nothing(tokenizer, seen))
    contrast = Contrast(model, seen, hiding, this, that)
    deletions = DeletionCache(contrast.without)
    words, marks = _by_words(contrast, deletions)
    shares = np.exp(scores - scores.max()) / np.exp(scores - scores.max()).sum()
    named, other = (TokenProb(tokenizer.token(id), id, float(shares[id])) for id in (this, that))
    given, following = score_prompt(model, tokenizer, seen.ids, top)
    return TokenAttribution(
        prompt=prompt,
        token=named,
        against=other,
        difference=float(scores[this] - scores[that]),
        prompt_tokens=given,
        next_tokens=following,
        layers=logit_lens(model, tokenizer, seen.ids, this),
        words=words,
        special_tokens=marks,
        occlusion_method=hiding.said,
        faithfulness=_tests(words, deletions, named, other, draws, seed),
        remarks=(LENS, SLOPE, CIRCULAR) if words else (LENS, NO_WORDS),
    )


def _by_words(
    contrast: Contrast, deletions: DeletionCache[float]
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
    deletions: DeletionCache[float],
    token: TokenProb,
    against: TokenProb,
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
        return resolve_token(tokenizer, token)
    order = np.argsort(-scores, kind="stable").tolist()
    return next(int(id) for id in order if id != taken)


def _nothing(tokenizer: Tokenizer, seen: Reading) -> tuple[int, ...]:
    """What is read where every word is hidden and no mark stands before them."""
    if seen.marks:
        return ()
    ends = (
        tokenizer.special_tokens.eos,
        tokenizer.special_tokens.bos,
        tokenizer.special_tokens.unk,
        tokenizer.special_tokens.pad,
    )
    named = next((name for name in ends if name is not None), None)
    return (seen.ids[0] if named is None else tokenizer.token_to_id(named),)
