"""Which family a public tokenizer is of, and what goes without saying in each.

A directory names a class of `transformers`; many of them are one and the same. A family is how a
text is cut (`pipelines`), the tokens it has unless told otherwise, and what stands around a text.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tokenizers import Tokenizer as Backend

from qkv.text import pipelines
from qkv.text.pipelines import Roles
from qkv.text.settings import Settings
from qkv.text.vocabulary import Vocabulary

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

BERT = Family(TXT, "WordPiece", pipelines.words, BRACKETS, ("cls_token",), ("sep_token",))
MPNET = Family(
    TXT, "WordPiece", pipelines.words, ANGLES | {"unk_token": "[UNK]"},
    ("cls_token",), ("sep_token",), trims=True, mask_takes_space=True,
)  # fmt: skip
ROBERTA = Family(
    JSON, "BPE", pipelines.byte_level, ANGLES, ("cls_token",), ("sep_token",), trims=True
)
GPT2 = Family(JSON, "BPE", pipelines.byte_level, END_OF_TEXT)
NEOX = Family(
    JSON, "BPE", pipelines.byte_level_composed, END_OF_TEXT | {"pad_token": "<|padding|>"}
)
QWEN = Family(
    JSON, "BPE", pipelines.qwen,
    {"unk_token": "<|endoftext|>", "eos_token": "<|endoftext|>", "pad_token": "<|endoftext|>"},
)  # fmt: skip
T5 = Family(
    MODEL, "Unigram", pipelines.pieces,
    {"eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"},
    (), ("eos_token",), unknown=2,
)  # fmt: skip
XLMR = Family(
    MODEL, "Unigram", pipelines.pieces_after_space, ANGLES,
    ("bos_token",), ("eos_token",), unknown=3,
)  # fmt: skip
MBART = Family(
    MODEL, "Unigram", pipelines.pieces_as_they_are, ANGLES,
    (), ("eos_token", "language"), unknown=3, languages=LANGUAGES,
    mask_takes_space=True,
)  # fmt: skip
MBART50 = Family(
    MODEL, "Unigram", pipelines.pieces_of_lines,
    {name: token for name, token in ANGLES.items() if name != "bos_token"},
    ("language",), ("eos_token",), unknown=3, languages=LANGUAGES_50,
    mask_takes_space=True,
)  # fmt: skip
LLAMA = Family(
    MODEL, "BPE", pipelines.llama,
    {"unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>"},
)  # fmt: skip
GEMMA = Family(
    MODEL, "BPE", pipelines.gemma,
    {"unk_token": "<unk>", "bos_token": "<bos>", "eos_token": "<eos>", "pad_token": "<pad>",
     "mask_token": "<mask>"},
)  # fmt: skip
MARIAN = Family(
    "source.spm", "Unigram", pipelines.sentencepiece_words,
    {"eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"},
    (), ("eos_token",),
)  # fmt: skip
PLAIN = Family(MODEL, "", pipelines.sentencepiece, {})  # whatever the file says

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
