"""Which columns of a table hold the text and the label, and whether its first row is a header.

- A column asked for by number, counted from 1, is that column. Digits are always a number.
- A column asked for by name must stand in the first row, which then is a header.
- Without any name the first row is a header if it has a well-known title for every role that is
  not given by number, and one in every numbered column: no sentence is just "text" beside "label".
- A row of nothing but well-known titles is a header, whatever the roles.
- Without a header, a table with as many columns as roles has them in the order of the roles.

Anything else is refused: a guess would train on the wrong column without a word.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from qkv.errors import DataError, unknown

TITLES: dict[str, tuple[str, ...]] = {  # of several in one header, the first here is meant
    "text": (
        "text", "sentence", "review", "content", "comment", "message", "document", "tweet",
        "question", "query", "utterance", "phrase", "title",
    ),
    "label": ("label", "category", "class", "intent", "sentiment", "target", "rating", "topic"),
    "source": ("source", "src", "input"),
    "target": ("target", "tgt", "trg", "translation", "output"),
    "score": (
        "score", "similarity", "similarity_score", "relatedness", "relatedness_score", "cosine",
        "rating", "label",
    ),
}  # fmt: skip
BESIDE_A_SCORE: dict[str, tuple[str, ...]] = {  # too short to be titles without one
    "source": ("sentence1", "sentence_1", "sentence_a", "text1", "text_1", "text_a", "first", "a"),
    "target": ("sentence2", "sentence_2", "sentence_b", "text2", "text_2", "text_b", "second", "b"),
}
LANGUAGES = (
    "en", "de", "fr", "es", "it", "pt", "nl", "pl", "cs", "sv", "da", "ru", "uk", "tr", "ar", "zh",
    "ja", "ko", "hi", "english", "german", "french", "spanish", "italian", "portuguese", "dutch",
    "polish", "czech", "swedish", "danish", "russian", "ukrainian", "turkish", "arabic", "chinese",
    "japanese", "korean", "hindi",
)  # fmt: skip

Asked = Mapping[str, str | None]  # role → column name or number, or None for the usual one


@dataclass(frozen=True)
class Columns:
    """Where each role stands, counted from 0, and whether the first row only says so."""

    places: tuple[int, ...]
    header: bool


def choose_columns(first: Sequence[str], asked: Asked, titled: bool = False) -> Columns:
    """The columns for each role, from the first row; `titled` if that is known to be a header."""
    cells = [cell.strip() for cell in first]
    names = [name for name in asked.values() if name is not None and not name.isdecimal()]
    places = {role: _place(role, name, cells) for role, name in asked.items() if name is not None}
    header = (
        titled or bool(names) or matches_known_titles(cells, asked, places) or _only_titles(cells)
    )
    for role in asked:
        if role not in places:
            places[role] = _usual_place(role, cells, asked, places, header)
    _check_distinct(places)
    return Columns(tuple(places[role] for role in asked), header)


def matches_known_titles(cells: Sequence[str], asked: Asked, numbered: Mapping[str, int]) -> bool:
    """Whether these cells have a well-known title for every role, the numbered ones included."""
    taken = list(numbered.values())
    for role in asked:
        titles = _titles(role, asked)
        place = numbered.get(role)
        if place is None:
            place = _titled_place(titles, cells, taken)
        if place is None or _rank(titles, cells[place]) is None:
            return False
        taken.append(place)
    return True


def _only_titles(cells: Sequence[str]) -> bool:
    """Whether every cell is a well-known title, if perhaps of another role: a header, not data."""
    known = {title for titles in TITLES.values() for title in titles}
    return len(cells) > 1 and all(cell.lower() in known for cell in cells)


def _place(role: str, name: str, cells: Sequence[str]) -> int:
    """The column asked for, by name or by number."""
    if name.isdecimal():
        if not 1 <= int(name) <= len(cells):
            raise DataError(
                f"there is no column {name} for the {role}; columns count from 1 to {len(cells)}"
            )
        return int(name) - 1
    if name not in cells:
        said = unknown("column", name, [_short(cell) for cell in cells])
        if "did you mean" in said:
            said += f" (columns: {_listed(cells)})"
        raise DataError(said)
    if cells.count(name) > 1:
        raise DataError(f'{cells.count(name)} columns are named "{name}"; ask for it by number')
    return cells.index(name)


def _usual_place(
    role: str, cells: Sequence[str], asked: Asked, places: Mapping[str, int], header: bool
) -> int:
    """The column of a role nobody named: by its title, or the only one left."""
    taken = tuple(places.values())
    if header and (place := _titled_place(_titles(role, asked), cells, taken)) is not None:
        return place
    free = [i for i in range(len(cells)) if i not in taken]
    # A header that titles nothing alike says that the order is not ours to assume.
    left = len(asked) - len(places)
    if free and len(cells) == len(asked) and (not header or left == 1):
        return free[0]
    raise DataError(
        f"which column holds the {role}? pass {role}=NAME or NUMBER (columns: {_listed(cells)})"
    )


def _titled_place(titles: Sequence[str], cells: Sequence[str], taken: Sequence[int]) -> int | None:
    ranked = [(_rank(titles, cell), i) for i, cell in enumerate(cells) if i not in taken]
    known = [(rank, i) for rank, i in ranked if rank is not None]
    return min(known)[1] if known else None


def _rank(titles: Sequence[str], cell: str) -> int | None:
    """How well that title fits, 0 best; None if it is none of them. Languages are all alike."""
    title = cell.lower()
    if title not in titles:
        return None
    return titles.index("en" if title in LANGUAGES else title)


def _titles(role: str, asked: Asked) -> tuple[str, ...]:
    """The titles a column of that role usually has, beside the other roles asked for."""
    if role not in BESIDE_A_SCORE:
        return TITLES[role]
    return TITLES[role] + (BESIDE_A_SCORE[role] if "score" in asked else LANGUAGES)


def _check_distinct(places: Mapping[str, int]) -> None:
    for one, other in combinations(places, 2):
        if places[one] == places[other]:
            raise DataError(f"{one} and {other} are both column {places[one] + 1}; name two")


def _listed(cells: Sequence[str]) -> str:
    shown = ", ".join(_short(cell) for cell in cells[:12])
    if len(cells) > 12:
        return f"{shown} and {len(cells) - 12} more"
    return shown


def _short(cell: str) -> str:
    line = " ".join(cell.split())
    if len(line) <= 32:
        return line
    return f"{line[:31]}…"
