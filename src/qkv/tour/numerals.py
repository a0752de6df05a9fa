"""Encoder–decoder: numbers from English to German, where the order turns around."""

from collections.abc import Iterator

import torch
from torch import Tensor

from qkv.attention import Steps
from qkv.model import Embedding, EncoderDecoder, Translator, build
from qkv.tour.learn import Words, learn, small_stack

UNITS = {
    "one": "ein", "two": "zwei", "three": "drei", "four": "vier", "five": "fünf", "six": "sechs",
    "seven": "sieben", "eight": "acht", "nine": "neun",
}  # fmt: skip
TENS = {
    "twenty": "zwanzig", "thirty": "dreißig", "forty": "vierzig", "fifty": "fünfzig",
    "sixty": "sechzig", "seventy": "siebzig", "eighty": "achtzig", "ninety": "neunzig",
}  # fmt: skip
START, END = "<start>", "<end>"


class Numerals:
    """ "twenty three" → "drei und zwanzig"; a fifth of all pairs is never shown in training."""

    def __init__(self, device: torch.device) -> None:
        pairs = [
            ([ten, unit], [START, UNITS[unit], "und", TENS[ten], END])
            for ten in TENS
            for unit in UNITS
        ]
        every = (word for english, german in pairs for word in (*english, *german))
        self.words = Words(*every, device=device)
        config = EncoderDecoder(
            length=16,
            embedding=Embedding(vocabulary=len(self.words), scaled=True),
            encoder=small_stack(),
            decoder=small_stack(),
        )
        model = build(config, seed=3, device=device)
        assert isinstance(model, Translator)
        self.model = model
        order = torch.randperm(len(pairs), generator=torch.Generator().manual_seed(4)).tolist()
        shuffled, fifth = [pairs[i] for i in order], len(pairs) // 5
        self.test, self.train = shuffled[:fifth], shuffled[fifth:]

    def learn(self) -> Iterator[float]:
        source, target = (self.words.ids([pair[i] for pair in self.train]) for i in range(2))

        def forward() -> tuple[Tensor, Tensor]:
            return self.model(source, target[:, :-1]).flatten(0, 1), target[:, 1:].flatten()

        yield from learn(self.model, forward, steps=150)

    def accuracy(self) -> float:
        """Pairs never seen in training that are translated word for word."""
        right = [self.translate(english) == german[1:-1] for english, german in self.test]
        return right.count(True) / len(right)

    @torch.no_grad()
    def translate(self, english: list[str]) -> list[str]:
        """The most likely next word until the end; the source is read once."""
        memory = self.model.encode(self.words.ids([english]))
        cache, new, written = self.model.empty_cache(1), [START], list[str]()
        while len(written) < 8:
            scores = self.model.decode(self.words.ids([new]), memory, cache=cache)
            word = self.words.words[int(scores[0, -1].argmax())]
            if word == END:
                break
            written.append(word)
            new = [word]
        return written

    @torch.no_grad()
    def alignment(self, english: list[str], german: list[str]) -> Tensor:
        """How much each German word read each English one, averaged over the last layer's heads."""
        seen: list[Steps] = []
        last = list(self.model.decoder.blocks())[-1]
        tap = last.get_submodule("cross.mix.steps")
        watch = tap.register_forward_hook(lambda tap, given, steps: seen.append(steps))
        try:
            self.model(self.words.ids([english]), self.words.ids([[START, *german[:-1]]]))
        finally:
            watch.remove()
        return seen[0].weights[0].mean(dim=0)  # (T, S)
