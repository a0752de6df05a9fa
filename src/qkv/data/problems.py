"""What is wrong with people's data: rows that cannot be used, and labels that look like mistakes.

All bad rows are collected before anything is reported, so that a file can be mended in one go. The
list in a message is bounded, its count is not.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from qkv.errors import DataError

MAX_ROWS_LISTED = 10
MAX_LABELS_LISTED = 5

MIN_TYPO_LENGTH = 4  # of a label; "cat" and "car" are two words
TYPO_RARITY = 4  # a misspelling is at least so many times rarer than the label it stands for


@dataclass(frozen=True)
class BadRow:
    """The line or row number of a row that cannot be used, why, and what to do about it.

    `last` is the last line of a row that spans several.
    """

    number: int
    reason: str
    advice: str = ""
    last: int | None = None


def row_unit(path: Path) -> str:
    """What the numbers of a file count: Parquet and Excel files have rows, all others lines."""
    if path.suffix.lower() in (".parquet", ".xlsx"):
        return "row"
    return "line"


class BadRows:
    """Collects bad rows of one or more files: an error at the end or, with `skip`, a remark.

    skip: None if the caller has no way to skip rows, so that the error does not offer it.
    """

    def __init__(self, skip: bool | None = None) -> None:
        self.skip = skip
        self.count = 0
        self._first: list[tuple[Path, BadRow]] = []

    def add(self, path: Path, row: BadRow) -> None:
        self.count += 1
        if len(self._first) < MAX_ROWS_LISTED:
            self._first.append((path, row))

    def check(self) -> None:
        """Raise a DataError with all bad rows, unless they are to be skipped."""
        if self.count and not self.skip:
            raise self.error()

    def error(self) -> DataError:
        """The error that lists these rows."""
        advice = list(dict.fromkeys(row.advice for _, row in self._first if row.advice))
        message = self._list_rows()
        if self.count > 1:
            message = f"{self.count:,} bad rows: {message}"
        message = "; ".join([message, *advice])
        if self.skip is False:
            message += "; or pass skip_bad=True to leave such rows out"
        return DataError(message)

    def remarks(self) -> list[str]:
        """A sentence about the rows that were skipped, if there are any."""
        if not self.count:
            return []
        rows = "1 bad row was skipped" if self.count == 1 else f"{self.count:,} bad rows skipped"
        return [f"{rows}: {self._list_rows()}"]

    def _list_rows(self) -> str:
        items = []
        previous: Path | None = None
        for path, row in self._first:
            location = f"{row_unit(path)} {row.number}"
            if row.last is not None and row.last > row.number:
                location = f"lines {row.number} to {row.last}"
            if path != previous:
                location = f"{path} {location}"
            items.append(f"{location}: {row.reason}")
            previous = path
        text = ", ".join(items)
        if self.count > len(items):
            text += f" and {self.count - len(items):,} more"
        return text


def label_remarks(labels: Iterable[str]) -> list[str]:
    """Sentences about labels that look like a misspelling of another one, or that occur once."""
    counts = Counter(labels)
    typos = _variants(counts) | _misspellings(counts)
    remarks = []
    for typo, label in list(typos.items())[:MAX_LABELS_LISTED]:
        remarks.append(
            f'the label "{typo}" ({counts[typo]:,}) looks like "{label}" ({counts[label]:,}); '
            "if it is a typo, correct it"
        )
    if len(typos) > MAX_LABELS_LISTED:
        remarks.append(f"{len(typos) - MAX_LABELS_LISTED:,} more labels look like typos")
    once = [label for label, count in counts.items() if count == 1 and label not in typos]
    if len(once) == 1:
        remarks.append(f'the label "{once[0]}" occurs once; it cannot be learned and validated')
    elif once:
        remarks.append(
            f"{len(once):,} labels occur once, so they cannot be learned and validated: "
            f"{_quote_first(once)}"
        )
    return remarks


def _variants(counts: Counter[str]) -> dict[str, str]:
    """Each label that differs from a more frequent one only in case, spaces, - or _."""
    spellings: dict[str, list[str]] = defaultdict(list)
    for label, _ in counts.most_common():
        spellings[_normalize(label)].append(label)
    variants = {}
    for first, *others in spellings.values():
        variants.update(dict.fromkeys(others, first))
    return variants


def _misspellings(counts: Counter[str]) -> dict[str, str]:
    """Each rare label that equals a frequent one after deleting at most one letter of each.

    So a letter may be missing, added, replaced or swapped with its neighbour.
    """
    by_deletion: dict[str, list[str]] = defaultdict(list)  # most frequent first
    for label, _ in counts.most_common():
        for shorter in _deletions(label):
            by_deletion[shorter].append(label)
    typos = {}
    for label, count in counts.items():
        candidates = [other for key in _deletions(label) for other in by_deletion[key]]
        likely = [
            other
            for other in dict.fromkeys(candidates)
            if counts[other] >= TYPO_RARITY * count and not _differ_in_digits(label, other)
        ]
        if likely:
            typos[label] = max(likely, key=lambda other: counts[other])
    return typos


def _deletions(label: str) -> list[str]:
    """The label and all it can become by the loss of one letter; nothing for a short one."""
    letters = _normalize(label)
    if len(letters) < MIN_TYPO_LENGTH:
        return []
    shorter = [letters[:i] + letters[i + 1 :] for i in range(len(letters))]
    return list(dict.fromkeys([letters, *shorter]))


def _normalize(label: str) -> str:
    return " ".join(label.casefold().replace("_", " ").replace("-", " ").split())


def _differ_in_digits(a: str, b: str) -> bool:
    """Whether the digits differ, as in "class 1" and "class 2": two labels, not a typo."""
    return [c for c in a if c.isdigit()] != [c for c in b if c.isdigit()]


def _quote_first(labels: Sequence[str]) -> str:
    text = ", ".join(f'"{label}"' for label in labels[:MAX_LABELS_LISTED])
    if len(labels) > MAX_LABELS_LISTED:
        text += f" and {len(labels) - MAX_LABELS_LISTED:,} more"
    return text
