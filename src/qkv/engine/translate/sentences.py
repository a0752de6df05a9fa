"""Where a text can be cut with the least harm: after sentences, after clauses, between words.

Every cut keeps all characters: the pieces, put together again, are the text.
"""

import re
from itertools import pairwise

# A sentence ends with these, then perhaps quotes or brackets that close, then a space; in Chinese
# and Japanese without one.
_END = re.compile(r"[.?!…؟۔।॥]+[\"'”’»›)\]]*\s+|[。！？｡]+[」』”’）】]*\s*")
_CLAUSE = re.compile(r"[,;:،؛—–]+[\"'”’»)\]]*\s+|\s[—–-]\s+|[、，；：]\s*")
_WORD = re.compile(r"\s+")

_NEAR = 32  # characters before a full stop that are looked at
_LAST_WORD = re.compile(r"[^\s(\[\"'“‘„«]*\Z")
_ORDINAL = re.compile(r"\d{1,3}|[IVXLC]+")  # "der 2. Mai", "Louis XIV. von Frankreich"
_INITIAL = re.compile(r"(?:[^\W\d_]\.)*[^\W\d_]")  # "J. Smith", "e.g. Rome", "z.B. Rom"
_ABBREVIATIONS = {
    "mr", "mrs", "ms", "dr", "prof", "st", "jr", "sr", "rev", "hon", "gen", "col", "capt", "lt",
    "sgt", "messrs", "mt", "ft", "vs", "etc", "cf", "al", "approx", "dept", "inc", "ltd", "co",
    "corp", "bros", "jan", "feb", "apr", "aug", "sept", "oct", "nov", "hr", "fr", "frl", "abs",
    "abb", "bd", "bzw", "usw", "ca", "evtl", "ggf", "inkl", "exkl", "geb", "gest", "jh", "jhd",
    "kap", "mio", "mrd", "mwst", "sog", "str", "tel", "vgl", "zzgl", "dipl", "ing", "mme", "mlle",
    "mlles", "av", "env", "janv", "juil", "sra", "srta", "ud", "uds", "dña", "lic", "avda", "pág",
    "núm", "dott", "ecc", "pag", "ул", "им", "др", "тыс", "млн", "млрд", "руб", "стр", "рис",
}  # fmt: skip
_BEFORE_A_NUMBER = {
    "no", "nos", "nr", "art", "sec", "fig", "figs", "p", "pp", "vol", "ch", "ed",
}  # fmt: skip


def sentences(text: str) -> list[str]:
    """The sentences of a text, each with the space behind it."""
    return pieces(text, [found.end() for found in _END.finditer(text) if _ends(text, found)])


def clauses(text: str) -> list[str]:
    """The parts of a sentence between commas, semicolons, colons and dashes."""
    return pieces(text, [found.end() for found in _CLAUSE.finditer(text)])


def words(text: str) -> list[str]:
    """What stands between spaces, each word with the space behind it."""
    return pieces(text, [found.end() for found in _WORD.finditer(text)])


def pieces(text: str, ends: list[int]) -> list[str]:
    """The text cut at these places; no piece is empty."""
    return [text[a:b] for a, b in pairwise([0, *ends, len(text)]) if a < b]


def _ends(text: str, found: re.Match[str]) -> bool:
    """Whether a sentence ends with this mark, rather than an abbreviation or a number."""
    follows = text[found.end() : found.end() + 8].lstrip("\"'“‘„«‹([¿¡")[:1]
    if follows.islower():
        return False  # “Is it?” he asked
    if not found[0].startswith(".") or found[0].startswith(".."):
        return True
    last = _LAST_WORD.search(text[max(0, found.start() - _NEAR) : found.start()])
    before = "" if last is None else last[0]
    if _ORDINAL.fullmatch(before) or _INITIAL.fullmatch(before):
        return False
    if follows.isdigit() and before.lower() in _BEFORE_A_NUMBER:
        return False
    return before.lower() not in _ABBREVIATIONS
