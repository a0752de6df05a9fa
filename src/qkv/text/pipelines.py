"""How public tokenizers cut a text: one function for each way, given its vocabulary.

They are those of `transformers` 5, which builds them anew from the vocabulary and the options
even where a tokenizer.json says something else; so they are built here too, and the ids agree.
"""

from collections.abc import Mapping

from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers
from tokenizers import Tokenizer as Backend

from qkv.text.sentencepiece import SPACE
from qkv.text.settings import Settings
from qkv.text.vocabulary import Vocabulary

Roles = Mapping[str, str]  # bos_token, … by name

QWEN_WORDS = Regex(
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def words(vocabulary: Vocabulary, settings: Settings, roles: Roles) -> Backend:
    """WordPiece, as in BERT (Devlin et al. 2018)."""
    model = models.WordPiece(vocabulary.ids, unk_token=roles["unk_token"])
    backend = Backend(model)
    backend.normalizer = normalizers.BertNormalizer(
        clean_text=True,
        handle_chinese_chars=bool(settings.flag("tokenize_chinese_chars", True)),
        strip_accents=settings.flag("strip_accents", None),
        lowercase=bool(settings.flag("do_lower_case", True)),
    )
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.decoder = decoders.WordPiece(prefix="##")
    return backend


def byte_level(vocabulary: Vocabulary, settings: Settings, roles: Roles) -> Backend:
    """BPE over bytes, as in GPT-2 (Radford et al. 2019)."""
    backend = Backend(
        models.BPE(
            vocabulary.ids,
            list(vocabulary.merges),
            continuing_subword_prefix="",
            end_of_word_suffix="",
        )
    )
    space = bool(settings.flag("add_prefix_space", False))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=space)
    backend.decoder = decoders.ByteLevel()
    return backend


def byte_level_composed(vocabulary: Vocabulary, settings: Settings, roles: Roles) -> Backend:
    """The same after characters and their accents are made one, as in GPT-NeoX."""
    backend = byte_level(vocabulary, settings, roles)
    backend.normalizer = normalizers.NFC()
    return backend


def qwen(vocabulary: Vocabulary, settings: Settings, roles: Roles) -> Backend:
    """The same, with every digit a word."""
    backend = byte_level_composed(vocabulary, settings, roles)
    space = bool(settings.flag("add_prefix_space", False))
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(QWEN_WORDS, "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=space, use_regex=False),
        ]
    )
    return backend


def pieces(vocabulary: Vocabulary, settings: Settings, roles: Roles) -> Backend:
    """Unigram over words, as in T5; the space before a word is its "▁"."""
    backend = _unigram_of_words(vocabulary, "always")
    if vocabulary.charsmap:
        backend.normalizer = normalizers.Precompiled(vocabulary.charsmap)
    return backend


def pieces_after_space(vocabulary: Vocabulary, settings: Settings, roles: Roles) -> Backend:
    """The same, but whether the first word gets a space is a setting, as in XLM-R."""
    scheme = "always" if settings.flag("add_prefix_space", True) else "never"
    backend = _unigram_of_words(vocabulary, scheme)
    if vocabulary.charsmap:
        backend.normalizer = normalizers.Precompiled(vocabulary.charsmap)
    return backend


def pieces_as_they_are(vocabulary: Vocabulary, settings: Settings, roles: Roles) -> Backend:
    """The same without a normalizer, as in mBART."""
    return _unigram_of_words(vocabulary, "always")


def pieces_of_lines(vocabulary: Vocabulary, settings: Settings, roles: Roles) -> Backend:
    """The same, but only spaces end a word, as in mBART-50."""
    backend = _unigram(vocabulary)
    charsmap = [normalizers.Precompiled(vocabulary.charsmap)] if vocabulary.charsmap else []
    one_space = normalizers.Replace(Regex(" {2,}"), " ")
    backend.normalizer = normalizers.Sequence([*charsmap, one_space])
    backend.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
    backend.decoder = decoders.Metaspace(prepend_scheme="always")
    return backend


def llama(vocabulary: Vocabulary, settings: Settings, roles: Roles) -> Backend:
    """SentencePiece's BPE: the whole text is one word, an unknown character its bytes."""
    backend = Backend(
        models.BPE(vocabulary.ids, list(vocabulary.merges), fuse_unk=True, byte_fallback=True)
    )
    space = settings.flag("add_prefix_space", True)
    scheme = ("always" if settings.flag("legacy", False) else "first") if space else "never"
    backend.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=scheme, split=False)
    backend.decoder = _bytes_decoder(*([decoders.Strip(" ", left=1)] if space else []))
    return backend


def gemma(vocabulary: Vocabulary, settings: Settings, roles: Roles) -> Backend:
    """The same, with no space in front."""
    backend = Backend(
        models.BPE(
            vocabulary.ids,
            list(vocabulary.merges),
            fuse_unk=True,
            unk_token=roles["unk_token"],
            byte_fallback=True,
        )
    )
    backend.normalizer = normalizers.Replace(" ", SPACE)
    backend.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    backend.decoder = _bytes_decoder()
    return backend


def sentencepiece(vocabulary: Vocabulary, settings: Settings, roles: Roles) -> Backend:
    """Any other SentencePiece model, with no more than the model file says."""
    if vocabulary.scores:
        backend = _unigram(vocabulary, vocabulary.byte_fallback)
    else:
        unknown = next(token for token, id in vocabulary.ids.items() if id == vocabulary.unknown)
        backend = Backend(
            models.BPE(
                vocabulary.ids,
                list(vocabulary.merges),
                unk_token=unknown,
                fuse_unk=True,
                byte_fallback=vocabulary.byte_fallback,
            )
        )
    charsmap = [normalizers.Precompiled(vocabulary.charsmap)] if vocabulary.charsmap else []
    backend.normalizer = normalizers.Sequence([*charsmap, normalizers.Replace(" ", SPACE)])
    plain = decoders.Sequence([decoders.Replace(SPACE, " ")])
    backend.decoder = _bytes_decoder() if vocabulary.byte_fallback else plain
    return backend


def sentencepiece_words(vocabulary: Vocabulary, settings: Settings, roles: Roles) -> Backend:
    """Unigram just as SentencePiece itself does it, as in Marian."""
    backend = _unigram(vocabulary)
    steps: list[normalizers.Normalizer] = []
    if vocabulary.charsmap:
        # Composed first: the library would drop the second of two accents on one letter.
        steps += [normalizers.NFC(), normalizers.Precompiled(vocabulary.charsmap)]
    if vocabulary.tidies_space:
        steps += [
            normalizers.Replace(Regex(" {2,}"), " "),
            normalizers.Replace(Regex(r"\A | \z"), ""),
        ]
    backend.normalizer = normalizers.Sequence(steps)
    scheme = "always" if vocabulary.adds_space else "never"
    backend.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=scheme)
    ends = decoders.Replace(Regex(r"\A +| +\z"), "")
    backend.decoder = decoders.Sequence([decoders.Replace(SPACE, " "), decoders.Fuse(), ends])
    return backend


def _unigram(vocabulary: Vocabulary, byte_fallback: bool = False) -> Backend:
    return Backend(models.Unigram(list(vocabulary.scores), vocabulary.unknown, byte_fallback))


def _unigram_of_words(vocabulary: Vocabulary, scheme: str) -> Backend:
    backend = _unigram(vocabulary)
    space = pre_tokenizers.Metaspace(prepend_scheme=scheme)
    backend.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), space])
    backend.decoder = decoders.Metaspace(prepend_scheme=scheme)
    return backend


def _bytes_decoder(*further: decoders.Decoder) -> decoders.Decoder:
    parts = [decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse(), *further]
    return decoders.Sequence(parts)
