"""Which columns of a table hold the text and the label, and whether its first row is a header.

A role is what a column is used for: text, label, source, target, score.

- A role may be given a column by number, counted from 1; digits always mean a number.
- A role may be given a column by name, which must be in the first row; that is then a header.
- Without any name the first row is a header if it has a known title for every role without a
  number, and one in every numbered column: no sentence is just "text" next to "label".
- A row that consists of known titles is a header, whatever the roles.
- Without a header, a table with as many columns as roles has them in the order of the roles.

Anything else is an error: a guess would silently train on the wrong column.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from qkv.errors import DataError, unknown

TITLES: dict[str, tuple[str, ...]] = {  # in order of preference
    "text": (
        "text", "sentence", "review", "content", "comment", "message", "document", "tweet",
        "question", "query", "utterance", "phrase", "title", "prompt",
    ),
    "label": ("label", "category", "class", "intent", "sentiment", "target", "rating", "topic"),
    "source": ("source", "src", "input"),
    "target": ("target", "tgt", "trg", "translation", "output"),
    "score": (
        "score", "similarity", "similarity_score", "relatedness", "relatedness_score", "cosine",
        "rating", "label",
    ),
}  # fmt: skip
SCORED_TITLES: dict[str, tuple[str, ...]] = {  # too short to be titles without a score
    "source": ("sentence1", "sentence_1", "sentence_a", "text1", "text_1", "text_a", "first", "a"),
    "target": ("sentence2", "sentence_2", "sentence_b", "text2", "text_2", "text_b", "second", "b"),
}
LANGUAGES = (
    "en", "de", "fr", "es", "it", "pt", "nl", "pl", "cs", "sv", "da", "ru", "uk", "tr", "ar", "zh",
    "ja", "ko", "hi", "english", "german", "french", "spanish", "italian", "portuguese", "dutch",
    "polish", "czech", "swedish", "danish", "russian", "ukrainian", "turkish", "arabic", "chinese",
    "japanese", "korean", "hindi",
)  # fmt: skip

ColumnRequest = Mapping[str, str | None]  # role → column name or number, None to find it by title


@dataclass(frozen=True)
class Columns:
    """The index of each role's column, and whether the first row is a header."""

    indices: tuple[int, ...]
    header: bool


def choose_columns(
    first_row: Sequence[str], request: ColumnRequest, is_header: bool = False
) -> Columns:
    """The column of each role; `is_header` if the first row is known to be a header."""
    cells = [cell.strip() for cell in first_row]
    indices: dict[str, int] = {}
    header = is_header
    for role, name in request.items():
        if name is not None:
            indices[role] = _requested_column(role, name, cells)
            header = header or not name.isdecimal()
    header = header or matches_known_titles(cells, request, indices) or _only_titles(cells)
    for role in request:
        if role not in indices:
            indices[role] = _default_column(role, cells, request, indices, header)
    _check_distinct(indices)
    return Columns(tuple(indices[role] for role in request), header)


def matches_known_titles(
    cells: Sequence[str], request: ColumnRequest, numbered: Mapping[str, int]
) -> bool:
    """Whether these cells have a known title for every role, the numbered ones included."""
    occupied = list(numbered.values())
    for role in request:
        titles = _titles(role, request)
        index = numbered.get(role)
        if index is None:
            index = _titled_column(titles, cells, occupied)
        if index is None or _rank(titles, cells[index]) is None:
            return False
        occupied.append(index)
    return True


def _only_titles(cells: Sequence[str]) -> bool:
    """Whether every cell is a known title, perhaps of another role: a header, not data."""
    all_titles = {title for titles in TITLES.values() for title in titles}
    return len(cells) > 1 and all(cell.lower() in all_titles for cell in cells)


def _requested_column(role: str, name: str, cells: Sequence[str]) -> int:
    """The index of a column requested by name or by number."""
    if name.isdecimal():
        if not 1 <= int(name) <= len(cells):
            raise DataError(
                f"there is no column {name} for the {role}; columns count from 1 to {len(cells)}"
            )
        return int(name) - 1
    if name not in cells:
        message = unknown("column", name, [_shorten(cell) for cell in cells])
        if "did you mean" in message:
            message += f" (columns: {_list_columns(cells)})"
        raise DataError(message)
    if cells.count(name) > 1:
        raise DataError(f'{cells.count(name)} columns are named "{name}"; give its number instead')
    return cells.index(name)


def _default_column(
    role: str,
    cells: Sequence[str],
    request: ColumnRequest,
    indices: Mapping[str, int],
    header: bool,
) -> int:
    """The column of a role without a request: by its title, or the only one that remains."""
    occupied = tuple(indices.values())
    if header:
        index = _titled_column(_titles(role, request), cells, occupied)
        if index is not None:
            return index
    free = [i for i in range(len(cells)) if i not in occupied]
    # A header without known titles gives no reason to assume our order, unless one role remains.
    remaining = len(request) - len(indices)
    if free and len(cells) == len(request) and (not header or remaining == 1):
        return free[0]
    raise DataError(
        f"which column holds the {role}? pass {role}=NAME or NUMBER "
        f"(columns: {_list_columns(cells)})"
    )


def _titled_column(
    titles: Sequence[str], cells: Sequence[str], occupied: Sequence[int]
) -> int | None:
    """The free column with the best title, the first of equals."""
    ranks = []
    for i, cell in enumerate(cells):
        rank = _rank(titles, cell)
        if i not in occupied and rank is not None:
            ranks.append((rank, i))
    if not ranks:
        return None
    return min(ranks)[1]


def _rank(titles: Sequence[str], cell: str) -> int | None:
    """The position of this title in the list, 0 is best, or None; languages rank equally."""
    title = cell.lower()
    if title not in titles:
        return None
    if title in LANGUAGES:
        return titles.index("en")
    return titles.index(title)


def _titles(role: str, request: ColumnRequest) -> tuple[str, ...]:
    """The known titles of a role's column, given the other roles."""
    if role not in SCORED_TITLES:
        return TITLES[role]
    if len(request) == 1:  # texts to translate, which need not be called sources
        return TITLES[role] + LANGUAGES + TITLES["text"]
    if "score" in request:
        return TITLES[role] + SCORED_TITLES[role]
    return TITLES[role] + LANGUAGES


def _check_distinct(indices: Mapping[str, int]) -> None:
    for a, b in combinations(indices, 2):
        if indices[a] == indices[b]:
            raise DataError(f"{a} and {b} are both column {indices[a] + 1}; name two")


def _list_columns(cells: Sequence[str]) -> str:
    columns = ", ".join(_shorten(cell) for cell in cells[:12])
    if len(cells) > 12:
        return f"{columns} and {len(cells) - 12} more"
    return columns


def _shorten(cell: str) -> str:
    line = " ".join(cell.split())
    if len(line) <= 32:
        return line
    return f"{line[:31]}…"
