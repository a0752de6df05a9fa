"""How public tokenizers cut a text: one function for each way, given its vocabulary.

They are those of `transformers` 5, which builds them anew from the vocabulary and the options
even where a tokenizer.json says something else; so they are built here too, and the ids agree.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers
from tokenizers import Tokenizer as Backend

from qkv.text.pretrained_files import Settings, Vocabulary
from qkv.text.sentencepiece import SPACE

# FOLDED text/families: Which family a public tokenizer is of, and what goes without saying in
#   each.
#
#   A directory names a class of `transformers`; many of them are one and the same. A family
#   is how a
#   text is cut (`pipelines`), the tokens it has unless told otherwise, and what stands around
#   a text.

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
    file: str  # the vocabulary it comes with if there is no tokenizer.json
    model: str  # what its vocabulary must be
    build: Callable[[Vocabulary, Settings, Roles], Backend]
    roles: Mapping[str, str]
    before: tuple[str, ...] | None = None  # roles; None leaves it to the file or to add_bos_token
    after: tuple[str, ...] = ()
    trims: bool = False  # whether offsets leave out the space before a word
    unknown: int | None = None  # the id it must have
    languages: tuple[str, ...] = ()
    mask_takes_space: bool = False  # the one before it, if no file says otherwise


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

TXT, JSON, MODEL = "vocab.txt", "vocab.json", "*.model"

BERT = Family(TXT, "WordPiece", words, BRACKETS, ("cls_token",), ("sep_token",))

MPNET = Family(
    TXT, "WordPiece", words, ANGLES | {"unk_token": "[UNK]"},
    ("cls_token",), ("sep_token",), trims=True, mask_takes_space=True,
)  # fmt: skip

ROBERTA = Family(JSON, "BPE", byte_level, ANGLES, ("cls_token",), ("sep_token",), trims=True)

GPT2 = Family(JSON, "BPE", byte_level, END_OF_TEXT)

NEOX = Family(JSON, "BPE", byte_level_composed, END_OF_TEXT | {"pad_token": "<|padding|>"})

QWEN = Family(
    JSON, "BPE", qwen,
    {"unk_token": "<|endoftext|>", "eos_token": "<|endoftext|>", "pad_token": "<|endoftext|>"},
)  # fmt: skip

T5 = Family(
    MODEL, "Unigram", pieces,
    {"eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"},
    (), ("eos_token",), unknown=2,
)  # fmt: skip

XLMR = Family(
    MODEL, "Unigram", pieces_after_space, ANGLES,
    ("bos_token",), ("eos_token",), unknown=3,
)  # fmt: skip

MBART = Family(
    MODEL, "Unigram", pieces_as_they_are, ANGLES,
    (), ("eos_token", "language"), unknown=3, languages=LANGUAGES,
    mask_takes_space=True,
)  # fmt: skip

MBART50 = Family(
    MODEL, "Unigram", pieces_of_lines,
    {name: token for name, token in ANGLES.items() if name != "bos_token"},
    ("language",), ("eos_token",), unknown=3, languages=LANGUAGES_50,
    mask_takes_space=True,
)  # fmt: skip

LLAMA = Family(
    MODEL, "BPE", llama,
    {"unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>"},
)  # fmt: skip

GEMMA = Family(
    MODEL, "BPE", gemma,
    {"unk_token": "<unk>", "bos_token": "<bos>", "eos_token": "<eos>", "pad_token": "<pad>",
     "mask_token": "<mask>"},
)  # fmt: skip

MARIAN = Family(
    "source.spm", "Unigram", sentencepiece_words,
    {"eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"},
    (), ("eos_token",),
)  # fmt: skip

PLAIN = Family(MODEL, "", sentencepiece, {})  # whatever the file says

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

WRONG = ("qwen2",)  # where the class of the model counts, whatever the directory says

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

CLASS_OF = {model: name for name, models in BY_MODEL.items() for model in models.split()}


def class_of(settings: Settings, tokenizer_json: str | None) -> str | None:
    """The class `transformers` would take, without "Tokenizer" and "Fast"; None if nothing says."""
    declared = settings.options.get("tokenizer_class") or settings.config.get("tokenizer_class")
    model = settings.config.get("model_type")
    usual = CLASS_OF.get(model) if isinstance(model, str) else None
    if not isinstance(declared, str):
        return usual
    name = declared.removesuffix("Fast").removesuffix("Tokenizer").removesuffix("Backend")
    byte_level = '"ByteLevel"' in (tokenizer_json or "")
    if usual == "Tokenizers" or (name == "Llama" and byte_level):  # Llama 3 is no Llama of these
        return "Tokenizers"
    return usual if model in WRONG else name
