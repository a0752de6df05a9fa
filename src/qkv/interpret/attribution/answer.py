"""Which words of a prompt the tokens of an answer come from.

Each word of the prompt is removed once, and the answer is scored again as it stands (teacher
forcing): how far the log-probability of each of its words falls is one row of a table. So one pass
per word of the prompt explains every token of the answer.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from qkv.engine import inference
from qkv.engine.generate import context_length, token_logits
from qkv.engine.translate import decoded_spans
from qkv.errors import DataError
from qkv.interpret.attribution.display import Displayed
from qkv.interpret.attribution.faithfulness import (
    DEFAULT_DRAWS,
    DEFAULT_SEED,
    Faithfulness,
    FloatArray,
    WordSet,
    faithfulness,
)
from qkv.interpret.attribution.occlusion import OCCLUSION_CAVEAT, REMOVE, DeletionCache
from qkv.interpret.attribution.words import TokenizedText, WordSpan, word_spans
from qkv.model import Decoder
from qkv.text import Tokenizer

MAX_BATCH_TOKENS = 4096
MAX_WORDS = 200  # of a long prompt, so many of the last words are tested
ANSWER_QUANTITY = "the log-probability of the answer"
EARLIER_WORDS_CAVEAT = (
    "a word of the answer also depends on those before it, which are not removed here"
)


@dataclass(frozen=True)
class AnswerWord:
    """A word of the answer: its log-probability, and how far it falls without each prompt word."""

    word: WordSpan
    log_probability: float
    drops: tuple[float, ...]

    @property
    def depends_on(self) -> tuple[int, ...]:
        """The prompt words whose removal lowers it, strongest first."""
        order = np.argsort([-drop for drop in self.drops], kind="stable").tolist()
        return tuple(index for index in order if self.drops[index] > 0)

    def json(self) -> dict[str, object]:
        return {
            **self.word.json(),
            "log_probability": self.log_probability,
            "drops": list(self.drops),
        }


@dataclass(frozen=True, repr=False)
class AnswerAttribution(Displayed):
    """Which words of the prompt the words of the answer come from.

    words: the tested words of the prompt; effects: how far the log-probability of the whole answer
    falls without each of them.
    """

    prompt: str
    answer: str
    words: tuple[WordSpan, ...]
    effects: tuple[float, ...]
    answer_words: tuple[AnswerWord, ...]
    occlusion_method: str
    faithfulness: Faithfulness | None
    remarks: tuple[str, ...]

    def json(self) -> dict[str, object]:
        return {
            "prompt": self.prompt,
            "answer": self.answer,
            "words": [
                {**word.json(), "effect": effect}
                for word, effect in zip(self.words, self.effects, strict=True)
            ],
            "answer_words": [word.json() for word in self.answer_words],
            "faithfulness": self.faithfulness and self.faithfulness.json(),
            "remarks": list(self.remarks),
        }


def why_answer(
    model: Decoder,
    tokenizer: Tokenizer,
    prompt_ids: Sequence[int],
    answer_ids: Sequence[int],
    *,
    draws: int = DEFAULT_DRAWS,
    seed: int = DEFAULT_SEED,
) -> AnswerAttribution:
    """The effect of each prompt word on each word of an answer that the model has given."""
    special = tokenizer.special_ids
    while answer_ids and answer_ids[-1] in special:  # EOS is not a word
        answer_ids = answer_ids[:-1]
    answer = tokenizer.decode(answer_ids)
    if not answer.strip():
        raise DataError("the answer has no words, so there is nothing to explain")
    prompt = _tokenize_ids(tokenizer, prompt_ids)
    offsets = decoded_spans(tokenizer, answer_ids, answer)
    answer_words = word_spans(tokenizer, answer, answer_ids, offsets)
    remarks = [EARLIER_WORDS_CAVEAT, OCCLUSION_CAVEAT]
    if len(prompt.words) > MAX_WORDS:
        remarks.insert(0, f"of {len(prompt.words)} words only the last {MAX_WORDS} were removed")
        words = prompt.words[-MAX_WORDS:]
        prompt = TokenizedText(prompt.text, prompt.ids, words, prompt.special_tokens)

    def log_probs(sets: list[WordSet]) -> list[FloatArray]:
        empty = prompt.ids[:1]
        texts = [
            REMOVE.apply(prompt.ids, prompt.positions_of(words)) or list(empty) for words in sets
        ]
        return answer_log_probs(model, texts, answer_ids, tokenizer.vocab_size)

    deletions = DeletionCache(log_probs)
    full = deletions.full()
    drops = [full - without for without in deletions.leave_one_out(len(prompt.words))]
    effects = [float(drop.sum()) for drop in drops]
    ranking = np.argsort([-effect for effect in effects], kind="stable").tolist()
    explained = []
    for word in answer_words:
        at = list(word.positions)
        explained.append(
            AnswerWord(word, float(full[at].sum()), tuple(float(drop[at].sum()) for drop in drops))
        )
    return AnswerAttribution(
        prompt=prompt.text,
        answer=answer,
        words=prompt.words,
        effects=tuple(effects),
        answer_words=tuple(explained),
        occlusion_method=REMOVE.description,
        faithfulness=faithfulness(
            ranking,
            lambda sets: [float(row.sum()) for row in deletions(sets)],
            ANSWER_QUANTITY,
            draws,
            seed,
        ),
        remarks=tuple(remarks),
    )


def answer_log_probs(
    model: Decoder, prompts: Sequence[Sequence[int]], answer: Sequence[int], vocab_size: int
) -> list[FloatArray]:
    """log p of each token of one answer after each of these prompts, (T,) each."""
    device = model.embedding.weight.device
    limit = context_length(model)
    count = len(answer)
    target = torch.tensor(answer, device=device)
    rows: list[FloatArray] = []
    longest = max(map(len, prompts)) + count
    if longest - 1 > limit:
        raise DataError(
            f"prompt and answer have {longest:,} tokens but the model reads at most {limit:,}"
        )
    batch_size = max(1, MAX_BATCH_TOKENS // longest)
    with inference(model):
        for first in range(0, len(prompts), batch_size):
            batch = [[*prompt, *answer[:-1]] for prompt in prompts[first : first + batch_size]]
            lengths = [len(text) for text in batch]
            ids = torch.zeros(len(batch), max(lengths), dtype=torch.long)
            for row, text in zip(ids, batch, strict=True):
                row[: len(text)] = torch.tensor(text)
            # Right padding needs no mask: under the causal one no token sees it.
            states = model.states(ids.to(device))
            for row_states, length in zip(states, lengths, strict=True):
                last = row_states[None, length - count : length]
                logs = token_logits(model, last, vocab_size)[0].double().log_softmax(dim=-1)
                rows.append(logs.gather(1, target[:, None])[:, 0].cpu().numpy())
    return rows


def _tokenize_ids(tokenizer: Tokenizer, ids: Sequence[int]) -> TokenizedText:
    """The words of ids that hold special tokens anywhere, as a chat template puts them."""
    special_ids = tokenizer.special_ids
    words: list[WordSpan] = []
    special: list[WordSpan] = []
    parts: list[str] = []
    start = 0
    for at in range(len(ids) + 1):
        if at < len(ids) and ids[at] not in special_ids:
            continue
        segment = ids[start:at]
        text = tokenizer.decode(segment)
        offsets = decoded_spans(tokenizer, segment, text)
        words += word_spans(tokenizer, text, segment, offsets, start)
        parts.append(text)
        if at < len(ids):
            special.append(WordSpan(tokenizer.token(ids[at]), -1, -1, (at,)))
        start = at + 1
    return TokenizedText(" ".join(filter(None, parts)), tuple(ids), tuple(words), tuple(special))
