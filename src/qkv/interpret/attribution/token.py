"""Why a decoder predicts one token rather than another.

Asked about one token alone, an attribution mostly finds what makes any token probable; asked about
the difference of two, it finds what decides between them (Yin and Neubig 2022, "Interpreting
Language Models with Contrastive Explanations"). The difference of two logits is the log-odds
log (p(token) / p(against)).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from qkv.attention import Mask
from qkv.engine import inference
from qkv.engine.generate import (
    context_length,
    encode_prompt,
    expect_language_model,
    last_token_logits,
)
from qkv.errors import UsageError
from qkv.interpret.attribution.display import Displayed
from qkv.interpret.attribution.faithfulness import (
    DEFAULT_DRAWS,
    DEFAULT_SEED,
    Faithfulness,
    FloatArray,
    WordSet,
    faithfulness,
)
from qkv.interpret.attribution.gradients import gradient_times_input, gradients_enabled
from qkv.interpret.attribution.occlusion import OCCLUSION_CAVEAT, DeletionCache, RemoveTokens
from qkv.interpret.attribution.readouts import (
    LayerReadout,
    PromptToken,
    TokenProb,
    logit_lens,
    resolve_token,
    score_prompt,
)
from qkv.interpret.attribution.words import TokenizedText, WordSpan, tokenize
from qkv.model import Decoder
from qkv.text import Tokenizer

MAX_BATCH_TOKENS = 4096
TOKEN_METHODS = ("occlusion", "gradient")  # each ranks the words
LOGIT_LENS_CAVEAT = (
    "the guesses after earlier layers are a reading: only the last layer was trained to be read"
)
GRADIENT_CAVEAT = "a gradient shows what a small change would do, not what the word as such did"
EMPTY_PROMPT_REMARK = "the prompt has no words, so no word is the reason"


@dataclass(frozen=True)
class Contrast:
    """Two possible next tokens of a prompt: `token` rather than `against`."""

    model: Decoder
    prompt: TokenizedText
    occlusion: RemoveTokens
    token: int
    against: int

    def logit_differences(self, sets: list[WordSet]) -> list[float]:
        """The difference of the two logits without each set of words."""
        texts = [
            self.occlusion.apply(self.prompt.ids, self.prompt.positions_of(words)) for words in sets
        ]
        logits = next_token_logits(self.model, texts, 1 + max(self.token, self.against))
        return [float(row[self.token] - row[self.against]) for row in logits]

    def gradient_times_input(self) -> FloatArray:
        """The gradient of the difference times the embedding, at each position: (T,)."""
        model = self.model
        with gradients_enabled(model):
            ids = torch.tensor([self.prompt.ids], device=model.embedding.weight.device)
            return gradient_times_input(self.difference, model.embedding(ids)[0].detach())

    def difference(self, x: Tensor) -> Tensor:
        """From embeddings (B, T, D) to the difference of the two next-token logits, (B,)."""
        states = self.model.decoder(x, Mask.causal())
        vocabulary = 1 + max(self.token, self.against)
        logits = last_token_logits(self.model, states, vocabulary).double()
        return logits[:, self.token] - logits[:, self.against]


def next_token_logits(
    model: Decoder, texts: Sequence[Sequence[int]], vocabulary: int
) -> FloatArray:
    """The next-token logits of each text, (N, V); texts are batched by length."""
    lengths = np.array([len(text) for text in texts])
    logits = np.zeros((len(texts), vocabulary))
    pending = np.argsort(-lengths, kind="stable")
    with inference(model):
        while len(pending):
            batch_size = max(1, MAX_BATCH_TOKENS // int(lengths[pending[0]]))
            batch, pending = np.split(pending, [batch_size])
            ids = torch.zeros(len(batch), int(lengths[batch[0]]), dtype=torch.long)
            for row, index in zip(ids, batch, strict=True):
                row[: lengths[index]] = torch.tensor(texts[index])
            # Right padding needs no mask: under the causal one no token sees it.
            states = model.states(ids.to(model.embedding.weight.device))
            last = states[torch.arange(len(batch)), torch.from_numpy(lengths[batch] - 1)]
            batch_logits = last_token_logits(model, last[:, None], vocabulary)
            logits[batch] = batch_logits.double().cpu().numpy()
    return logits


@dataclass(frozen=True)
class TokenWord:
    """The contribution of one word, or special token, to a token against another.

    occlusion: how far the logit difference falls without it; None for special tokens, which are
    never hidden. gradient: of the difference, times the embedding.
    """

    word: WordSpan
    occlusion: float | None
    gradient: float

    def json(self) -> dict[str, object]:
        return {**self.word.json(), "occlusion": self.occlusion, "gradient": self.gradient}


@dataclass(frozen=True, repr=False)
class TokenAttribution(Displayed):
    """Why `token` follows the prompt rather than `against`.

    difference: of their logits, the log-odds. layers: the logit lens. faithfulness: by method.
    """

    prompt: str
    token: TokenProb
    against: TokenProb
    difference: float
    prompt_tokens: tuple[PromptToken, ...]
    next_tokens: tuple[TokenProb, ...]
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
            "marks": [token.json() for token in self.special_tokens],
            "hidden": self.occlusion_method,
            "faithfulness": {name: test.json() for name, test in self.faithfulness.items()},
            "remarks": list(self.remarks),
        }


def why_token(
    model: Decoder,
    tokenizer: Tokenizer,
    prompt: str,
    token: str | int | None = None,
    against: str | int | None = None,
    *,
    top: int = 5,
    draws: int = DEFAULT_DRAWS,
    seed: int = DEFAULT_SEED,
) -> TokenAttribution:
    """Why this token follows the prompt rather than that one.

    token: an id or the token as it is displayed; by default the most probable one. against:
    likewise; by default the most probable other one. top: alternatives per token.
    """
    if top < 1:
        raise UsageError(f"top={top} must be 1 or more")
    expect_language_model(model)
    before = tokenizer.prefix_ids if prompt else encode_prompt(tokenizer, "")
    tokenized = tokenize(tokenizer, prompt, context_length(model), before=before, name="the prompt")
    logits = next_token_logits(model, [tokenized.ids], tokenizer.vocab_size)[0]
    token_id = _token_id(tokenizer, token, logits, None)
    against_id = _token_id(tokenizer, against, logits, token_id)
    if token_id == against_id:
        raise UsageError(f"token and against are both “{tokenizer.token(token_id)}”; name two")
    occlusion = RemoveTokens(_empty_prompt(tokenizer, tokenized))
    contrast = Contrast(model, tokenized, occlusion, token_id, against_id)
    deletions = DeletionCache(contrast.logit_differences)  # shared by attribution and tests
    words, special_tokens = _attribute(contrast, deletions)
    probs = np.exp(logits - logits.max()) / np.exp(logits - logits.max()).sum()
    this, that = (
        TokenProb(tokenizer.token(id), id, float(probs[id])) for id in (token_id, against_id)
    )
    prompt_tokens, next_tokens = score_prompt(model, tokenizer, tokenized.ids, top)
    remarks = (LOGIT_LENS_CAVEAT, GRADIENT_CAVEAT, OCCLUSION_CAVEAT)
    return TokenAttribution(
        prompt=prompt,
        token=this,
        against=that,
        difference=float(logits[token_id] - logits[against_id]),
        prompt_tokens=prompt_tokens,
        next_tokens=next_tokens,
        layers=logit_lens(model, tokenizer, tokenized.ids, token_id),
        words=words,
        special_tokens=special_tokens,
        occlusion_method=occlusion.description,
        faithfulness=_test(words, deletions, this, that, draws, seed),
        remarks=remarks if words else (LOGIT_LENS_CAVEAT, EMPTY_PROMPT_REMARK),
    )


def _attribute(
    contrast: Contrast, deletions: DeletionCache[float]
) -> tuple[tuple[TokenWord, ...], tuple[TokenWord, ...]]:
    """The contribution of each word, and of each special token."""
    gradients = contrast.gradient_times_input()
    prompt = contrast.prompt
    full = deletions.full()

    def gradient(word: WordSpan) -> float:
        return float(gradients[list(word.positions)].sum())

    words = []
    occluded = deletions.leave_one_out(len(prompt.words))
    for word, difference in zip(prompt.words, occluded, strict=True):
        words.append(TokenWord(word, full - difference, gradient(word)))
    special_tokens = [TokenWord(token, None, gradient(token)) for token in prompt.special_tokens]
    return tuple(words), tuple(special_tokens)


def _test(
    words: Sequence[TokenWord],
    deletions: DeletionCache[float],
    token: TokenProb,
    against: TokenProb,
    draws: int,
    seed: int,
) -> dict[str, Faithfulness]:
    """The faithfulness of each method."""
    quantity = f"the log-odds of “{token.token}” against “{against.token}”"
    tests = {}
    for method in TOKEN_METHODS:
        ranking = np.argsort([-getattr(word, method) for word in words], kind="stable").tolist()
        test = faithfulness(ranking, deletions, quantity, draws, seed)
        if test is not None:
            tests[method] = test
    return tests


def _token_id(
    tokenizer: Tokenizer, token: str | int | None, logits: FloatArray, excluded: int | None
) -> int:
    """The id of the token, or of the most probable one that is not excluded."""
    if token is not None:
        return resolve_token(tokenizer, token)
    order = np.argsort(-logits, kind="stable").tolist()
    return next(int(id) for id in order if id != excluded)


def _empty_prompt(tokenizer: Tokenizer, prompt: TokenizedText) -> tuple[int, ...]:
    """The input when every word is hidden; nothing is needed if special tokens remain."""
    if prompt.special_tokens:
        return ()
    special = tokenizer.special_tokens
    for token in (special.eos, special.bos, special.unk, special.pad):
        if token is not None:
            return (tokenizer.token_to_id(token),)
    return (prompt.ids[0],)
