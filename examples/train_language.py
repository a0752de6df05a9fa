"""Train a language model on documentation that ships inside Python, and let it write.

    python examples/train_language.py

After a few seconds it has learnt letters, short words and where lines end, and not much more.
"""

import tempfile
from pathlib import Path

from learn import learn

import qkv
from qkv.data import built_in


def main() -> None:
    folder = Path(tempfile.mkdtemp())
    text = "\n".join(built_in("language")[:20])
    (folder / "manual.txt").write_text(text, encoding="utf-8")

    characters = {"tokenizer": "characters", "context_length": 96, "batch": 960}
    learn("language", folder / "manual.txt", folder / "model", 100, **characters)

    model = qkv.load(folder / "model")
    for seed in (1, 2):
        completion = model.generate("The ", max_tokens=80, seed=seed).finish()
        print(f"--- seed {seed}, log-probability {sum(completion.logprobs):.1f}")
        print(f"The {completion.text}")


if __name__ == "__main__":
    main()
