"""The pipelines of public tokenizers: normalizer, pre-tokenizer, model and decoder of each family.

They are those of `transformers` 5, which rebuilds them from the vocabulary and the options even
where a tokenizer.json says something else; so they are built here too, and the ids agree.

A directory names a class of `transformers`; many of them are the same. A family is a pipeline, the
special tokens it has by default, and the template around a text.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers
from tokenizers import Tokenizer as Backend

from qkv.text.pretrained_files import Settings, Vocabulary
from qkv.text.sentencepiece import METASPACE

TokensByRole = Mapping[str, str]  # bos_token, …

QWEN_WORDS = Regex(
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def wordpiece(vocabulary: Vocabulary, settings: Settings, tokens: TokensByRole) -> Backend:
    """WordPiece, as in BERT (Devlin et al. 2018)."""
    model = models.WordPiece(vocabulary.ids, unk_token=tokens["unk_token"])
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


def byte_level(vocabulary: Vocabulary, settings: Settings, tokens: TokensByRole) -> Backend:
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


def byte_level_nfc(vocabulary: Vocabulary, settings: Settings, tokens: TokensByRole) -> Backend:
    """The same after NFC normalisation, as in GPT-NeoX."""
    backend = byte_level(vocabulary, settings, tokens)
    backend.normalizer = normalizers.NFC()
    return backend


def qwen(vocabulary: Vocabulary, settings: Settings, tokens: TokensByRole) -> Backend:
    """The same, with every digit a word, as in Qwen2."""
    backend = byte_level_nfc(vocabulary, settings, tokens)
    space = bool(settings.flag("add_prefix_space", False))
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(QWEN_WORDS, "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=space, use_regex=False),
        ]
    )
    return backend


def unigram_words(vocabulary: Vocabulary, settings: Settings, tokens: TokensByRole) -> Backend:
    """Unigram over words, as in T5; the space before a word is its "▁"."""
    backend = _unigram_of_words(vocabulary, "always")
    if vocabulary.charsmap:
        backend.normalizer = normalizers.Precompiled(vocabulary.charsmap)
    return backend


def unigram_optional_prefix(
    vocabulary: Vocabulary, settings: Settings, tokens: TokensByRole
) -> Backend:
    """The same, but whether the first word gets a space is a setting, as in XLM-R."""
    scheme = "always" if settings.flag("add_prefix_space", True) else "never"
    backend = _unigram_of_words(vocabulary, scheme)
    if vocabulary.charsmap:
        backend.normalizer = normalizers.Precompiled(vocabulary.charsmap)
    return backend


def unigram_unnormalized(
    vocabulary: Vocabulary, settings: Settings, tokens: TokensByRole
) -> Backend:
    """The same without a normalizer, as in mBART."""
    return _unigram_of_words(vocabulary, "always")


def unigram_spaces_only(
    vocabulary: Vocabulary, settings: Settings, tokens: TokensByRole
) -> Backend:
    """The same, but only spaces end a word, as in mBART-50."""
    backend = _unigram(vocabulary)
    one_space = normalizers.Replace(Regex(" {2,}"), " ")
    backend.normalizer = normalizers.Sequence([*_charsmap(vocabulary), one_space])
    backend.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
    backend.decoder = decoders.Metaspace(prepend_scheme="always")
    return backend


def llama(vocabulary: Vocabulary, settings: Settings, tokens: TokensByRole) -> Backend:
    """SentencePiece's BPE: the text is one word, an unknown character its bytes."""
    backend = Backend(
        models.BPE(vocabulary.ids, list(vocabulary.merges), fuse_unk=True, byte_fallback=True)
    )
    space = settings.flag("add_prefix_space", True)
    if not space:
        scheme = "never"
    elif settings.flag("legacy", False):
        scheme = "always"
    else:
        scheme = "first"
    backend.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=scheme, split=False)
    strip = [decoders.Strip(" ", left=1)] if space else []
    backend.decoder = _byte_fallback_decoder(*strip)
    return backend


def gemma(vocabulary: Vocabulary, settings: Settings, tokens: TokensByRole) -> Backend:
    """The same, with no space in front."""
    backend = Backend(
        models.BPE(
            vocabulary.ids,
            list(vocabulary.merges),
            fuse_unk=True,
            unk_token=tokens["unk_token"],
            byte_fallback=True,
        )
    )
    backend.normalizer = normalizers.Replace(" ", METASPACE)
    backend.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    backend.decoder = _byte_fallback_decoder()
    return backend


def sentencepiece(vocabulary: Vocabulary, settings: Settings, tokens: TokensByRole) -> Backend:
    """Any other SentencePiece model, by nothing but its model file."""
    if vocabulary.scores:
        backend = _unigram(vocabulary, vocabulary.byte_fallback)
    else:
        unk = next(token for token, id in vocabulary.ids.items() if id == vocabulary.unk_id)
        backend = Backend(
            models.BPE(
                vocabulary.ids,
                list(vocabulary.merges),
                unk_token=unk,
                fuse_unk=True,
                byte_fallback=vocabulary.byte_fallback,
            )
        )
    to_metaspace = normalizers.Replace(" ", METASPACE)
    backend.normalizer = normalizers.Sequence([*_charsmap(vocabulary), to_metaspace])
    if vocabulary.byte_fallback:
        backend.decoder = _byte_fallback_decoder()
    else:
        backend.decoder = decoders.Sequence([decoders.Replace(METASPACE, " ")])
    return backend


def sentencepiece_unigram(
    vocabulary: Vocabulary, settings: Settings, tokens: TokensByRole
) -> Backend:
    """Unigram exactly as in SentencePiece itself, for Marian."""
    backend = _unigram(vocabulary)
    steps: list[normalizers.Normalizer] = []
    if vocabulary.charsmap:
        # Composed first: the library would drop the second of two accents on one letter.
        steps += [normalizers.NFC(), normalizers.Precompiled(vocabulary.charsmap)]
    if vocabulary.remove_extra_whitespaces:
        steps += [
            normalizers.Replace(Regex(" {2,}"), " "),
            normalizers.Replace(Regex(r"\A | \z"), ""),
        ]
    backend.normalizer = normalizers.Sequence(steps)
    scheme = "always" if vocabulary.add_dummy_prefix else "never"
    backend.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=scheme)
    ends = decoders.Replace(Regex(r"\A +| +\z"), "")
    backend.decoder = decoders.Sequence([decoders.Replace(METASPACE, " "), decoders.Fuse(), ends])
    return backend


def _charsmap(vocabulary: Vocabulary) -> list[normalizers.Normalizer]:
    """SentencePiece's own normalizer, if the model has one."""
    if not vocabulary.charsmap:
        return []
    return [normalizers.Precompiled(vocabulary.charsmap)]


def _unigram(vocabulary: Vocabulary, byte_fallback: bool = False) -> Backend:
    return Backend(models.Unigram(list(vocabulary.scores), vocabulary.unk_id, byte_fallback))


def _unigram_of_words(vocabulary: Vocabulary, scheme: str) -> Backend:
    backend = _unigram(vocabulary)
    space = pre_tokenizers.Metaspace(prepend_scheme=scheme)
    backend.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), space])
    backend.decoder = decoders.Metaspace(prepend_scheme=scheme)
    return backend


def _byte_fallback_decoder(*further: decoders.Decoder) -> decoders.Decoder:
    parts = [decoders.Replace(METASPACE, " "), decoders.ByteFallback(), decoders.Fuse(), *further]
    return decoders.Sequence(parts)


LANGUAGES = tuple(
    "ar_AR cs_CZ de_DE en_XX es_XX et_EE fi_FI fr_XX gu_IN hi_IN it_IT ja_XX kk_KZ ko_KR lt_LT "  # noqa: SIM905
    "lv_LV my_MM ne_NP nl_XX ro_RO ru_RU si_LK tr_TR vi_VN zh_CN".split()
)

LANGUAGES_50 = LANGUAGES + tuple(
    "af_ZA az_AZ bn_IN fa_IR he_IL hr_HR id_ID ka_GE km_KH mk_MK ml_IN mn_MN mr_IN pl_PL ps_AF "  # noqa: SIM905
    "pt_XX sv_SE sw_KE ta_IN te_IN th_TH tl_XX uk_UA ur_PK xh_ZA gl_ES sl_SI".split()
)


@dataclass(frozen=True)
class Family:
    """Tokenizer classes of transformers that differ only in their vocabularies."""

    vocab_file: str  # the vocabulary it comes with if there is no tokenizer.json
    model: str  # the type of model its vocabulary must be
    build: Callable[[Vocabulary, Settings, TokensByRole], Backend]
    tokens: Mapping[str, str]  # its special tokens by name, unless the files say otherwise
    # Names of tokens around a text; None leaves that to the file or to add_bos_token.
    prefix: tuple[str, ...] | None = None
    suffix: tuple[str, ...] = ()
    trim_offsets: bool = False  # whether offsets leave out the space before a word
    unk_id: int | None = None  # the id it must have
    languages: tuple[str, ...] = ()
    mask_lstrip: bool = False  # whether the mask takes the space before it


BRACKETS = {
    "unk_token": "[UNK]",
    "sep_token": "[SEP]",
    "pad_token": "[PAD]",
    "cls_token": "[CLS]",
    "mask_token": "[MASK]",
}

ANGLES = {
    "bos_token": "<s>",
    "eos_token": "</s>",
    "unk_token": "<unk>",
    "sep_token": "</s>",
    "pad_token": "<pad>",
    "cls_token": "<s>",
    "mask_token": "<mask>",
}

END_OF_TEXT = dict.fromkeys(("unk_token", "bos_token", "eos_token"), "<|endoftext|>")

VOCAB_TXT = "vocab.txt"
VOCAB_JSON = "vocab.json"
SENTENCEPIECE = "*.model"

BERT = Family(VOCAB_TXT, "WordPiece", wordpiece, BRACKETS, ("cls_token",), ("sep_token",))

MPNET = Family(
    VOCAB_TXT,
    "WordPiece",
    wordpiece,
    ANGLES | {"unk_token": "[UNK]"},
    ("cls_token",),
    ("sep_token",),
    trim_offsets=True,
    mask_lstrip=True,
)

ROBERTA = Family(
    VOCAB_JSON, "BPE", byte_level, ANGLES, ("cls_token",), ("sep_token",), trim_offsets=True
)

GPT2 = Family(VOCAB_JSON, "BPE", byte_level, END_OF_TEXT)

NEOX = Family(VOCAB_JSON, "BPE", byte_level_nfc, END_OF_TEXT | {"pad_token": "<|padding|>"})

QWEN = Family(
    VOCAB_JSON,
    "BPE",
    qwen,
    {"unk_token": "<|endoftext|>", "eos_token": "<|endoftext|>", "pad_token": "<|endoftext|>"},
)

T5 = Family(
    SENTENCEPIECE,
    "Unigram",
    unigram_words,
    {"eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"},
    (),
    ("eos_token",),
    unk_id=2,
)

XLMR = Family(
    SENTENCEPIECE,
    "Unigram",
    unigram_optional_prefix,
    ANGLES,
    ("bos_token",),
    ("eos_token",),
    unk_id=3,
)

MBART = Family(
    SENTENCEPIECE,
    "Unigram",
    unigram_unnormalized,
    ANGLES,
    (),
    ("eos_token", "language"),
    unk_id=3,
    languages=LANGUAGES,
    mask_lstrip=True,
)

MBART50 = Family(
    SENTENCEPIECE,
    "Unigram",
    unigram_spaces_only,
    {name: token for name, token in ANGLES.items() if name != "bos_token"},
    ("language",),
    ("eos_token",),
    unk_id=3,
    languages=LANGUAGES_50,
    mask_lstrip=True,
)

LLAMA = Family(
    SENTENCEPIECE,
    "BPE",
    llama,
    {"unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>"},
)

GEMMA = Family(
    SENTENCEPIECE,
    "BPE",
    gemma,
    {
        "unk_token": "<unk>",
        "bos_token": "<bos>",
        "eos_token": "<eos>",
        "pad_token": "<pad>",
        "mask_token": "<mask>",
    },
)

MARIAN = Family(
    "source.spm",
    "Unigram",
    sentencepiece_unigram,
    {"eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"},
    (),
    ("eos_token",),
)

PLAIN = Family(SENTENCEPIECE, "", sentencepiece, {})  # whatever the file says

BY_CLASS = {
    **dict.fromkeys(("Bert", "DistilBert", "Electra", "MobileBert", "SqueezeBert"), BERT),
    "MPNet": MPNET,
    **dict.fromkeys(("Roberta", "Bart", "Longformer", "LED"), ROBERTA),
    **dict.fromkeys(("GPT2", "CodeGen"), GPT2),
    "GPTNeoX": NEOX,
    "Qwen2": QWEN,
    "T5": T5,
    "XLMRoberta": XLMR,
    "MBart": MBART,
    "MBart50": MBART50,
    "Llama": LLAMA,
    "Gemma": GEMMA,
}

GENERIC = ("PreTrained", "Tokenizers")

# Model types whose directories name a wrong class; that of the model type counts.
MISNAMED = ("qwen2",)

BY_MODEL = {
    "Bert": "bert distilbert electra convbert squeezebert megatron-bert nomic_bert nezha layoutlm",
    "MobileBert": "mobilebert",
    "MPNet": "mpnet",
    "Roberta": "roberta bart longformer data2vec-text ibert roberta-prelayernorm",
    "LED": "led",
    "GPT2": "gpt2 gpt_neo gptj codegen opt phi starcoder2",
    "GPTNeoX": "gpt_neox mamba mamba2 mpt olmo olmoe falcon_mamba",
    "Qwen2": "qwen2 qwen2_moe qwen3 qwen3_moe qwen3_next",
    "T5": "t5 mt5 switch_transformers",
    "XLMRoberta": "xlm-roberta xmod gte",
    "MBart": "mbart",
    "Gemma": "gemma gemma2 gemma3 gemma3_text recurrent_gemma t5gemma",
    "Marian": "marian",
    "Tokenizers": "mistral mixtral ministral mistral3 umt5 granite granitemoe olmo2 olmo3 stablelm "
    "glm glm4 gpt_bigcode persimmon phi3 phimoe modernbert modernbert-decoder nemotron jamba "
    "arctic internlm2 minicpm3 ernie4_5 xlm-roberta-xl nystromformer smolvlm llava",
}

CLASS_OF = {model: name for name, types in BY_MODEL.items() for model in types.split()}


def class_of(settings: Settings, tokenizer_json: str | None) -> str | None:
    """The class `transformers` would take, without "Tokenizer" and "Fast"; None if unspecified."""
    declared = settings.options.get("tokenizer_class") or settings.config.get("tokenizer_class")
    model = settings.config.get("model_type")
    default = CLASS_OF.get(model) if isinstance(model, str) else None
    if not isinstance(declared, str):
        return default
    name = declared.removesuffix("Fast").removesuffix("Tokenizer").removesuffix("Backend")
    is_byte_level = '"ByteLevel"' in (tokenizer_json or "")
    # Llama 3 names the class of Llama 2, but is a byte-level BPE.
    if default == "Tokenizers" or (name == "Llama" and is_byte_level):
        return "Tokenizers"
    return default if model in MISNAMED else name
