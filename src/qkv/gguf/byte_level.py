"""Byte-level vocabularies ("gpt2"): a text is cut into words, and their bytes are joined.

How it is cut is not in the file, only the name of the way. The expressions are those published
with each tokenizer; a name that is not known here is refused, because a text cut in another way
gives the model tokens it has rarely seen.
"""

from typing import NamedTuple

from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers
from tokenizers import Tokenizer as Backend

from qkv.errors import BundleError
from qkv.files import shown
from qkv.gguf.facts import Facts
from qkv.gguf.vocabulary import PREFIX, Vocabulary

GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


class Cut(NamedTuple):
    """Each expression cuts what the ones before it left."""

    words: tuple[str, ...]
    whole: bool = False  # a word that is a token is taken without joining
    starts: bool = False  # with the start token, unless the file says otherwise
    composed: bool = False  # letters and their accents become one character first


CUTS = {
    "default": Cut((r"[\p{P}\$\+<=>\^~\|]+", GPT2, r"\p{N}+", "[0-9][0-9][0-9]")),
    "gpt-2": Cut((GPT2,)),
    "llama-bpe": Cut((LLAMA3,), whole=True, starts=True),
    "qwen2": Cut((LLAMA3.replace("{1,3}", ""),), composed=True),
    "smollm": Cut((r"\p{N}", GPT2)),
}
ALIKE = {"llama3": "llama-bpe", "llama-v3": "llama-bpe"}


def cut_of(facts: Facts) -> Cut:
    name = facts.text(f"{PREFIX}.pre", "default")
    if ALIKE.get(name, name) not in CUTS:
        raise BundleError(
            f"{facts.path} cuts text into words in the way {shown(name)}; known are "
            f"{', '.join((*CUTS, *ALIKE))}"
        )
    return CUTS[ALIKE.get(name, name)]


def byte_backend(facts: Facts, vocabulary: Vocabulary) -> Backend:
    cut = cut_of(facts)
    backend = Backend(models.BPE(vocabulary.ids(), _merges(facts), ignore_merges=cut.whole))
    if cut.composed:
        backend.normalizer = normalizers.NFC()
    steps: list[pre_tokenizers.PreTokenizer] = [
        pre_tokenizers.Split(Regex(words), "isolated") for words in cut.words
    ]
    steps.append(pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False))
    backend.pre_tokenizer = pre_tokenizers.Sequence(steps)
    backend.decoder = decoders.ByteLevel()
    return backend


def _merges(facts: Facts) -> list[tuple[str, str]]:
    merges = []
    for merge in facts.each(f"{PREFIX}.merges", str):
        cut = merge.find(" ", 1)  # a token may itself begin with a space
        left, right = merge[: max(cut, 0)], merge[cut + 1 :]
        if not (left and right):
            raise BundleError(
                f"{facts.path}: the merge {shown(merge)} is no two tokens with a space between"
            )
        merges.append((left, right))
    return merges
