"""How many target tokens a second a translator writes, greedy and with four beams, beside peers.

    python bench/translate_speed.py

Marian's shape: 6 + 6 layers, width 512, 8 heads, feed-forward 2048, vocabulary 8,000, with random
weights that are the same for all. 64 sources of about 20 tokens, searched together; no target can
end before its fixed length. All run by turns, each in a process of its own; medians. Prints a table
and one JSON line.
"""

import argparse
import json
import tempfile
import warnings
from collections.abc import Callable
from functools import partial
from importlib.metadata import version
from pathlib import Path

import torch
from interleaved import Peer, interleave

from machine import machine
from qkv.bundle import Bundle
from qkv.engine.beam.search import beam_search
from qkv.engine.optimized import int8_supported, optimize
from qkv.machine.resources import reuse_freed_memory
from qkv.model import Translator

VOCABULARY, WIDTH, LAYERS, HEADS, HIDDEN = 8000, 512, 6, 8, 2048
END, UNKNOWN, START = 0, 1, VOCABULARY - 1
Translate = Callable[[int], list[list[int]]]  # beams -> the best target of each source


def some_sources(count: int) -> list[list[int]]:
    """Between 15 and 25 tokens each, the end included."""
    draws = torch.Generator().manual_seed(0)
    lengths = torch.randint(14, 25, (count,), generator=draws).tolist()
    drawn = [torch.randint(2, START, (n,), generator=draws).tolist() for n in lengths]
    return [[*source, END] for source in drawn]


def random_marian(model_dir: Path) -> None:
    """Weights large enough for opinions; the end has no chance."""
    from transformers import MarianConfig, MarianMTModel

    torch.manual_seed(0)
    config = MarianConfig(
        vocab_size=VOCABULARY, d_model=WIDTH, encoder_layers=LAYERS, decoder_layers=LAYERS,
        encoder_attention_heads=HEADS, decoder_attention_heads=HEADS, encoder_ffn_dim=HIDDEN,
        decoder_ffn_dim=HIDDEN, pad_token_id=START, eos_token_id=END, forced_eos_token_id=None,
        decoder_start_token_id=START, max_position_embeddings=128, init_std=0.06,
        scale_embedding=True, activation_function="swish",
    )  # fmt: skip
    model = MarianMTModel(config).eval()
    model.final_logits_bias[0, END] = model.final_logits_bias[0, START] = -1e4
    model.save_pretrained(model_dir)


def ours(
    model_dir: Path, sources: list[list[int]], length: int, int8: bool, compile: bool
) -> Translate:
    model = optimize(Bundle.load(model_dir).model, int8, compile)
    reuse_freed_memory()  # as the commands do
    assert isinstance(model, Translator)

    def run(beams: int) -> list[list[int]]:
        outputs = beam_search(
            model, sources, bos=START, eos=END, beams=beams, max_length=length,
            batch_tokens=beams * 25 * len(sources),
        )  # fmt: skip
        return [list(best.ids) for best, *_ in outputs]

    return run


def transformers_marian(model_dir: Path, sources: list[list[int]], length: int) -> Translate:
    from transformers import MarianMTModel

    model = MarianMTModel.from_pretrained(model_dir).eval()
    width = max(map(len, sources))
    ids = torch.tensor([source + [START] * (width - len(source)) for source in sources])

    @torch.inference_mode()
    def run(beams: int) -> list[list[int]]:
        outputs = model.generate(
            ids, attention_mask=(ids != START).long(), num_beams=beams, do_sample=False,
            max_new_tokens=length, max_length=None, early_stopping=False,
        )  # fmt: skip
        return [row[1 : 1 + length].tolist() for row in outputs]

    return run


def ctranslate2_marian(
    model_dir: Path, sources: list[list[int]], length: int, kind: str
) -> Translate:
    import ctranslate2
    from ctranslate2.converters.transformers import MarianMTLoader
    from transformers import MarianMTModel

    tokens = ["</s>", "<unk>", *(f"t{i}" for i in range(2, START))]
    converted = model_dir.with_name(f"ct2-{kind}")
    loader = MarianMTLoader()
    spec = loader.get_model_spec(MarianMTModel.from_pretrained(model_dir).eval())
    loader.set_vocabulary(spec, tokens)
    spec.config.eos_token, spec.config.unk_token = "</s>", "<unk>"
    spec.config.decoder_start_token = "</s>"
    spec.validate()
    converted.mkdir()
    spec.save(str(converted))
    translator = ctranslate2.Translator(
        str(converted), compute_type=kind, intra_threads=torch.get_num_threads()
    )
    numbers = {token: i for i, token in enumerate(tokens)}
    texts = [[tokens[i] for i in source] for source in sources]

    def run(beams: int) -> list[list[int]]:
        outputs = translator.translate_batch(
            texts, beam_size=beams, max_decoding_length=length, max_batch_size=0
        )
        return [[numbers[token] for token in result.hypotheses[0]] for result in outputs]

    return run


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--sources", type=int, default=64)
    parser.add_argument("--length", type=int, default=32)
    parser.add_argument("--only", nargs="*", help="names of peers")
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    before = machine()
    sources = some_sources(args.sources)
    with tempfile.TemporaryDirectory() as folder:
        model_dir, inputs = Path(folder) / "marian", (sources, args.length)
        random_marian(model_dir)
        factories: dict[str, Callable[[], Peer]] = {
            "qkv": partial(Peer, ours, model_dir, *inputs, False, False),
            "qkv --compile": partial(Peer, ours, model_dir, *inputs, False, True),
            "qkv int8 --compile": partial(Peer, ours, model_dir, *inputs, True, True),
            "transformers": partial(Peer, transformers_marian, model_dir, *inputs),
            "ctranslate2 float32": partial(Peer, ctranslate2_marian, model_dir, *inputs, "float32"),
            "ctranslate2 int8": partial(Peer, ctranslate2_marian, model_dir, *inputs, "int8"),
        }
        if int8_supported():  # else torch takes a minute for what it does in a second there
            factories["qkv int8"] = partial(Peer, ours, model_dir, *inputs, True, False)
        peers = {n: make() for n, make in factories.items() if not args.only or n in args.only}
        rows = {beams: measure(peers, beams, args) for beams in (1, 4)}
    result = {"bench": "translate_speed", "length": args.length, "sources": args.sources}
    for beams, row in rows.items():
        for name, row_result in row.items():
            print(
                f"beams {beams}  {name:20} {row_result['tokens_a_second']:6,} tokens/s  "
                f"{row_result['like_qkv']:4.0%} of the targets as qkv's"
            )
        result[f"beams_{beams}"] = row
    peers_of = {name: version(name) for name in ("transformers", "ctranslate2")}
    print(json.dumps({**result, **peers_of, **before}))


def measure(
    peers: dict[str, Peer], beams: int, args: argparse.Namespace
) -> dict[str, dict[str, float]]:
    """How fast each is, and how many of its targets are ours."""
    outputs = {name: peer.answer(beams) for name, peer in peers.items()}
    works = {name: partial(peer.seconds, beams) for name, peer in peers.items()}
    rates = interleave(works, args.sources * args.length, args.repeats)
    own = outputs.get("qkv", next(iter(outputs.values())))
    return {
        name: {
            "tokens_a_second": round(rate),
            "like_qkv": sum(a == b for a, b in zip(own, outputs[name], strict=True)) / len(own),
        }
        for name, rate in rates.items()
    }


if __name__ == "__main__":
    main()
