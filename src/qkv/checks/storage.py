"""Round trips: a model saved and loaded again, and a text encoded and decoded again."""

import shutil
import tempfile
import unicodedata
from pathlib import Path

import torch

from qkv.bundle import Bundle
from qkv.checks.model_under_test import ModelUnderTest, forward
from qkv.checks.result import Check, Finding, first_or_empty
from qkv.engine import inference
from qkv.errors import QkvError
from qkv.files import one_line
from qkv.text import DEFAULT_SPECIAL_TOKENS, Tokenizer

DISK_SPACE_FACTOR = 1.5  # times the size of the model must be free
LOSSLESS_KINDS = ("bpe", "bytes")  # trained by qkv, these restore every text exactly
INTEGERS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}  # by bytes


def measure_saved(subject: ModelUnderTest, tolerance: float) -> Finding:
    """How many tensors and other parts differ; the first is named."""
    bundle = subject.engine.bundle
    with tempfile.TemporaryDirectory(prefix="qkv-check-") as folder:
        path = Path(folder) / "model"
        try:
            bundle.save(path)
            reloaded = Bundle.load(path, bundle.model.embedding.weight.device)
            differences = _differences(subject, bundle, reloaded)
            del reloaded  # its weights are mapped from the folder that is about to be deleted
        except QkvError as error:
            return Finding(1.0, one_line(error).replace(folder, "…"))
    return Finding(float(len(differences)), first_or_empty(differences))


def _differences(subject: ModelUnderTest, bundle: Bundle, reloaded: Bundle) -> list[str]:
    differences = []
    if bundle.model.config != reloaded.model.config:
        differences.append("the config")
    weights = bundle.model.state_dict()
    reloaded_weights = reloaded.model.state_dict()
    for name in sorted(weights.keys() | reloaded_weights.keys()):
        a = weights.get(name)
        b = reloaded_weights.get(name)
        if a is None or b is None or a.dtype != b.dtype or not _bits_equal(a, b):
            differences.append(name)
    if not _tokenizers_equal(subject, bundle.tokenizer, reloaded.tokenizer):
        differences.append("the tokenizer")
    if bundle.card != reloaded.card:
        differences.append("the import card")
    if not differences:
        inputs = subject.inputs[:2]
        with inference(bundle.model), inference(reloaded.model):
            output = forward(bundle.model, inputs)
            reloaded_output = forward(reloaded.model, inputs)
        if not _bits_equal(output, reloaded_output):
            differences.append("output")
    return differences


def _tokenizers_equal(
    subject: ModelUnderTest, tokenizer: Tokenizer | None, reloaded: Tokenizer | None
) -> bool:
    if tokenizer is None or reloaded is None:
        return tokenizer is reloaded
    if tokenizer.to_json() != reloaded.to_json():
        return False
    return tokenizer.encode_many(subject.texts) == reloaded.encode_many(subject.texts)


def _bits_equal(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether all bits are equal: NaN equals NaN, and 0 is not −0."""
    if a.shape != b.shape:
        return False
    # Compared as integers: floating-point equality does not see the sign of 0 or a NaN payload.
    integer = INTEGERS[a.element_size()]
    return torch.equal(a.contiguous().view(integer), b.contiguous().view(integer))


def skip_saved(subject: ModelUnderTest) -> str:
    if subject.too_large_reason:
        return subject.too_large_reason
    size = sum(tensor.nbytes for tensor in subject.model.state_dict().values())
    free = shutil.disk_usage(tempfile.gettempdir()).free
    if free < DISK_SPACE_FACTOR * size:
        return f"the model has {size:,} bytes, but only {free:,} are free for a copy of it"
    return ""


SAVED = Check(
    name="saved = loaded",
    invariant="saved and loaded, every tensor, token and output is the same, bit for bit",
    violation="the model is not the same after saving and loading it",
    tolerance=0.0,
    measure=measure_saved,
    skip_reason=skip_saved,
)


def measure_round_trip(subject: ModelUnderTest, tolerance: float) -> Finding:
    """How many texts are not restored; those with unknown characters are skipped and counted."""
    tokenizer = subject.engine.tokenizer
    lossless = (
        tokenizer.kind in LOSSLESS_KINDS and tokenizer.special_tokens == DEFAULT_SPECIAL_TOKENS
    )
    failures: list[str] = []
    unknown = 0
    for number, text in enumerate(subject.texts, start=1):
        ids = tokenizer.encode(text, target=True)
        if _unk_id(tokenizer) in ids:
            unknown += 1
            continue
        decoded = tokenizer.decode(ids)
        expected = text
        actual = decoded
        if not lossless:
            expected = normalized(text)
            actual = normalized(decoded)
        if actual != expected:
            failures.append(f"text {number}, character {_first_difference(expected, actual)}")
        elif not lossless and tokenizer.encode(decoded, target=True) != ids:
            failures.append(f"text {number}, whose tokens change when it is encoded again")
    remarks = []
    if not lossless:
        remarks.append("except for case, accents and whitespace")
    if unknown:
        remarks.append(f"{unknown} of {len(subject.texts)} texts have unknown characters")
    return Finding(float(len(failures)), first_or_empty(failures), "; ".join(remarks))


def normalized(text: str) -> str:
    """The part of a text that every tokenizer must preserve: no case, accents, whitespace."""
    letters = unicodedata.normalize("NFKD", text.casefold())
    # Folding may compose new characters and decomposing may give new capitals: once more.
    letters = unicodedata.normalize("NFKD", letters.casefold())
    return "".join(c for c in letters if not c.isspace() and unicodedata.category(c)[0] not in "MC")


def _first_difference(expected: str, actual: str) -> str:
    """The index of the first character that differs, and the character."""
    for index, letter in enumerate(expected):
        if index >= len(actual) or actual[index] != letter:
            return f"{index} ({letter!r})"
    return f"{len(expected)} (one too many)"


def _unk_id(tokenizer: Tokenizer) -> int | None:
    if tokenizer.special_tokens.unk is None:
        return None
    return tokenizer.unk_id


def skip_round_trip(subject: ModelUnderTest) -> str:
    if subject.engine.bundle.tokenizer is None:
        return "the model has no tokenizer"
    return ""


ROUND_TRIP = Check(
    name="tokenizer round trip",
    invariant="decoding the tokens of a text restores it",
    violation="decoding the tokens of a text does not restore it",
    tolerance=0.0,
    measure=measure_round_trip,
    skip_reason=skip_round_trip,
)
