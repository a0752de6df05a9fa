"""Open a public checkpoint and use it; or, without one, write one first and open that.

    python examples/load_a_public_model.py [DIRECTORY]

A directory with config.json, safetensors and tokenizer files, of BERT, GPT-2, Llama, T5 or their
kin; or a .gguf file. Nothing is downloaded, and no code from it is run.
"""

import sys
import tempfile
from pathlib import Path

import qkv
from qkv.bundle.bundle import export_checkpoint
from qkv.text import Tokenizer


def a_small_llama() -> Path:
    """Untrained, in the layout that other programs read."""
    tokenizer = Tokenizer.train("bytes", ["a"], 300)
    model = qkv.build(qkv.preset("llama-15m"), tokenizer)
    path = Path(tempfile.mkdtemp()) / "llama"
    export_checkpoint(model.bundle, path)
    return path


def main() -> None:
    path = Path(sys.argv[1]) if len(sys.argv) > 1 else a_small_llama()
    model = qkv.load(path)
    print(f"{path.name}: {model.model.config.parameters():,} parameters")
    for name, value in model.card.origin() if model.card else []:
        print(f"{name}: {value}")
    print(f"tokenizer: {model.tokenizer.summary}")
    print(f"“a dog runs” is {model.tokenizer.encode('a dog runs')}")


if __name__ == "__main__":
    main()
