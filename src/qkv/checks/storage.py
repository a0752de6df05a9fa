"""Saved = loaded: the model written as a bundle and read again is the same, bit for bit."""

import shutil
import tempfile
import unicodedata
from pathlib import Path

import torch

from qkv.bundle import Bundle
from qkv.checks.model_under_test import ModelUnderTest, forward
from qkv.checks.result import Check, Finding
from qkv.engine.batching import inference
from qkv.errors import QkvError
from qkv.files import one_line
from qkv.text import Tokenizer
from qkv.text.special_tokens import DEFAULT_SPECIAL_TOKENS

# FOLDED check/round_trip: Tokenizer round trip: a text cut into tokens and put together again
#   is that text.

ROOM = 1.5  # times the size of the model that must be free on the disk


def find_saved(subject: ModelUnderTest, tolerance: float) -> Finding:
    """How many tensors and other things differ; the first is named."""
    bundle = subject.engine.bundle
    with tempfile.TemporaryDirectory(prefix="qkv-check-") as folder:
        place = Path(folder) / "model"
        try:
            bundle.save(place)
            again = Bundle.load(place, bundle.model.embedding.weight.device)
            different = _different(subject, bundle, again)
            del again  # its weights are mapped from the folder that goes now
        except QkvError as error:
            return Finding(1.0, one_line(error).replace(folder, "…"))
    return Finding(float(len(different)), different[0] if different else "")


def _different(subject: ModelUnderTest, one: Bundle, other: Bundle) -> list[str]:
    found = ["the config"] if one.model.config != other.model.config else []
    left, right = one.model.state_dict(), other.model.state_dict()
    for name in sorted(left.keys() | right.keys()):
        a, b = left.get(name), right.get(name)
        if a is None or b is None or a.dtype != b.dtype or not _bits_equal(a, b):
            found.append(name)
    if (one.tokenizer is None) != (other.tokenizer is None):
        found.append("the tokenizer")
    if one.tokenizer is not None and other.tokenizer is not None:
        kept = (t.encode_many(subject.texts) for t in (one.tokenizer, other.tokenizer))
        if one.tokenizer.to_json() != other.tokenizer.to_json() or next(kept) != next(kept):
            found.append("the tokenizer")
    if one.card != other.card:
        found.append("the import card")
    if not found:
        with inference(one.model), inference(other.model):
            said = [forward(bundle.model, subject.inputs[:2]) for bundle in (one, other)]
        found += [] if _bits_equal(*said) else ["output"]
    return found


def _bits_equal(one: torch.Tensor, other: torch.Tensor) -> bool:
    """NaN equals NaN, and 0 is not −0."""
    if one.shape != other.shape:
        return False
    sizes = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    kind = sizes[one.element_size()]
    return torch.equal(one.contiguous().view(kind), other.contiguous().view(kind))


def lacks_saved(subject: ModelUnderTest) -> str:
    if subject.too_large_reason:
        return subject.too_large_reason
    size = sum(t.nbytes for t in subject.model.state_dict().values())
    free = shutil.disk_usage(tempfile.gettempdir()).free
    if free < ROOM * size:
        return f"the model has {size:,} bytes, but only {free:,} are free for a copy of it"
    return ""


SAVED = Check(
    "saved = loaded",
    "written and read again, every tensor, token and answer is the same, bit for bit",
    0.0,
    find_saved,
    lacks_saved,
)

EXACT = ("bpe", "bytes")  # kinds that, learned here, give back every text as it was


def find(subject: ModelUnderTest, tolerance: float) -> Finding:
    """How many texts do not come back; those with a character that is not known are left out."""
    tokenizer = subject.engine.tokenizer
    exact = tokenizer.kind in EXACT and tokenizer.special_tokens == DEFAULT_SPECIAL_TOKENS
    lost, unknown = list[str](), 0
    for number, text in enumerate(subject.texts, start=1):
        ids = tokenizer.encode(text, target=True)
        if _unknown(tokenizer) in ids:
            unknown += 1
            continue
        back = tokenizer.decode(ids)
        if back != text if exact else bare(back) != bare(text):
            lost.append(f"text {number}, character {_first(text, back, exact)}")
        elif not exact and tokenizer.encode(back, target=True) != ids:
            lost.append(f"text {number}, whose tokens change on the way")
    told = [] if exact else ["but for case, accents and blanks"]
    told += [f"{unknown} of {len(subject.texts)} texts hold what it does not know"] * bool(unknown)
    return Finding(float(len(lost)), lost[0] if lost else "", "; ".join(told))


def bare(text: str) -> str:
    """What every tokenizer must keep: a text without case, accents and blanks."""
    letters = unicodedata.normalize("NFKD", text.casefold())
    letters = unicodedata.normalize("NFKD", letters.casefold())
    return "".join(c for c in letters if not c.isspace() and unicodedata.category(c)[0] not in "MC")


def _first(text: str, back: str, exact: bool) -> str:
    """The first character that is another one, and where it stands."""
    one, other = (text, back) if exact else (bare(text), bare(back))
    for place, letter in enumerate(one):
        if place >= len(other) or other[place] != letter:
            return f"{place} ({letter!r})"
    return f"{len(one)} (one too many)"


def _unknown(tokenizer: Tokenizer) -> int | None:
    return None if tokenizer.special_tokens.unk is None else tokenizer.unk_id


def lacks(subject: ModelUnderTest) -> str:
    return "the model has no tokenizer" if subject.engine.bundle.tokenizer is None else ""


ROUND_TRIP = Check(
    "tokenizer round trip",
    "a text cut into tokens and put together again is that text",
    0.0,
    find,
    lacks,
)
