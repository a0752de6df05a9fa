"""The heads of a model judged by what they do with texts, and with random tokens twice over."""

from collections.abc import Callable, Iterable, Iterator

from qkv.engine.engine import Engine
from qkv.engine.translate.marking import Marking
from qkv.errors import UsageError
from qkv.explain.heads.kind import kind_of, scores_of
from qkv.explain.heads.repeats import repeats
from qkv.explain.heads.report import HeadReport, Twin
from qkv.explain.heads.samples import SAMPLES
from qkv.explain.heads.tally import Tally
from qkv.explain.heads.watch import Watch, head_off
from qkv.explain.reading import read_text
from qkv.explain.trace import Reading
from qkv.model import Model, Translator
from qkv.text import Tokenizer

ALIKE = 0.05  # Jensen–Shannon distance: below it two heads look at the same


def heads(
    box: Engine,
    texts: Iterable[str] = SAMPLES,
    *,
    seed: int = 0,
    progress: Callable[[int], None] | None = None,
) -> tuple[HeadReport, ...]:
    """Every head of a loaded model, layer by layer, judged by these texts; blank ones are left out.

    An encoder–decoder translates them first. progress: is told how many texts are done.
    """
    if texts is SAMPLES:
        _expect_english(box)
    return judged(box.model, _readings(box, texts, progress), box.tokenizer, seed)


def judged(
    model: Model, readings: Iterable[Reading], tokenizer: Tokenizer | None = None, seed: int = 0
) -> tuple[HeadReport, ...]:
    """The same for texts as ids, which may come one by one; the tokenizer says which are marks."""
    watch = Watch(model, frozenset() if tokenizer is None else tokenizer.special)
    for reading in readings:
        watch.read(reading)
    if not all(tally.queries for tally in watch.tallies.values()) or not watch.tallies:
        raise UsageError("heads are judged by where they look; give a text of 3 tokens or more")
    for reading in repeats(model, tokenizer, watch.met, seed):
        watch.read_repeats(reading)
    return tuple(
        _report(watch, name, tally, head)
        for name, tally in watch.tallies.items()
        for head in range(tally.heads)
    )


def _report(watch: Watch, name: str, tally: Tally, head: int) -> HeadReport:
    stack, layer, part = name.split(".")
    scores, offset = scores_of(tally, head, part == "cross")
    evenness = float(tally.evenness[head]) / tally.queries
    kind = kind_of(scores, offset, evenness)
    adds = float(tally.added[head] / tally.added.mean().clamp(min=1e-30))
    return HeadReport(
        stack=stack,
        layer=int(layer),
        part=part,
        head=head,
        kind=kind.name,
        pattern=kind.pattern,
        weight=kind.score.weight,
        chance=kind.score.chance,
        offset=kind.offset,
        scores=scores,
        entropy=float(tally.entropy[head]) / tally.queries,
        evenness=evenness,
        adds=adds,
        effect=watch.effect(head_off(name, head)),
        dead=not watch.matters(head_off(name, head)),
        duplicates=_twins(tally, head),
    )


def _twins(tally: Tally, head: int) -> tuple[Twin, ...]:
    """Heads that look at nearly the same, the nearest first."""
    apart = ((tally.apart + tally.apart.T)[head] / tally.compared).tolist()
    found = [Twin(other, far) for other, far in enumerate(apart) if other != head and far < ALIKE]
    return tuple(sorted(found, key=lambda twin: (twin.distance, twin.head)))


def _readings(
    box: Engine, texts: Iterable[str], progress: Callable[[int], None] | None
) -> Iterator[Reading]:
    for number, text in enumerate(texts):
        if not text.strip():
            continue
        if progress is not None:
            progress(number)
        if isinstance(box.model, Translator):
            yield _translated(box, box.model, text)
        else:
            yield read_text(box.model, box.tokenizer, text)


def _translated(box: Engine, model: Translator, text: str) -> Reading:
    """A text with the model's own translation, as far as the model can read that.

    What an ill-trained model wrote may be more tokens to read than it was to write.
    """
    t, marking = box.tokenizer, Marking.of(box.tokenizer, model.config)
    source = marking.source(t.encode(text))
    if len(source) > model.config.length:
        raise UsageError(
            f"a text has {len(source)} tokens but the model reads at most {model.config.length}"
        )
    written = t.encode(box.translate([text])[0].text, target=True)
    target = [*marking.start, *written][: model.config.length]
    return Reading.of_ids(source=source, target=target)


def _expect_english(box: Engine) -> None:
    """Sentences that a model cannot read tell nothing of its heads."""
    ids = [id for text in SAMPLES for id in box.tokenizer.encode(text)]
    lost = 0 if box.tokenizer.marks.unknown is None else ids.count(box.tokenizer.unknown)
    if not ids or lost > len(ids) / 4:
        raise UsageError(
            f"the built-in English sentences say little to {box.name}: {lost} of their {len(ids)} "
            "tokens are unknown to it; give texts of its own"
        )
