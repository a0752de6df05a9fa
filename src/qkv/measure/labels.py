"""How well guessed labels agree with the true ones, altogether and label by label."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from qkv.errors import DataError, unknown


@dataclass(frozen=True)
class LabelScore:
    """One label: how often it is right when guessed, how often it is found, and both in one."""

    precision: float
    recall: float
    f1: float
    count: int  # texts that truly have it


@dataclass(frozen=True)
class LabelScores:
    """All labels. The macro mean takes every label that occurs in the truth alike."""

    accuracy: float
    macro_f1: float
    per_label: Mapping[str, LabelScore]
    confusion: list[list[int]]  # a row for each true label, a column for each guessed one


def score_labels(
    truth: Sequence[str], guessed: Sequence[str], labels: Sequence[str]
) -> LabelScores:
    """The scores of guesses about texts with known labels; rows and columns as in `labels`.

    A label that is never guessed has precision 0, one that never occurs has recall 0.
    """
    _check(truth, guessed, labels)
    pairs = Counter(zip(truth, guessed, strict=True))
    confusion = [[pairs[true, guess] for guess in labels] for true in labels]
    per_label = {label: _score(confusion, at) for at, label in enumerate(labels)}
    occurring = [score.f1 for score in per_label.values() if score.count]
    right = sum(confusion[at][at] for at in range(len(labels)))
    return LabelScores(
        accuracy=right / len(truth),
        macro_f1=sum(occurring) / len(occurring),
        per_label=per_label,
        confusion=confusion,
    )


def _score(confusion: list[list[int]], at: int) -> LabelScore:
    right, count = confusion[at][at], sum(confusion[at])
    named = sum(row[at] for row in confusion)
    return LabelScore(
        precision=right / named if named else 0.0,
        recall=right / count if count else 0.0,
        f1=2 * right / (named + count) if named + count else 0.0,
        count=count,
    )


def _check(truth: Sequence[str], guessed: Sequence[str], labels: Sequence[str]) -> None:
    if len(truth) != len(guessed):
        raise DataError(f"{len(truth)} true labels but {len(guessed)} guesses; give one for each")
    if not truth:
        raise DataError("no labels to score; give at least one text with its label")
    known = set(labels)
    if len(known) != len(labels):
        twice = next(label for label, count in Counter(labels).items() if count > 1)
        raise DataError(f'label "{twice}" is listed twice; list each label once')
    for label in (*truth, *guessed):
        if label not in known:
            raise DataError(unknown("label", label, labels))
