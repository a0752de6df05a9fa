"""Train an embedding model on sentences with labels; then find what is alike, and group it.

python examples/embed_and_cluster.py
"""

import tempfile
from pathlib import Path

from learn import learn

import qkv
from qkv.data import built_in

PACKAGES = ("email", "unittest", "tkinter", "asyncio")


def main() -> None:
    folder = Path(tempfile.mkdtemp())
    chosen = [sentence for sentence in built_in("embed") if sentence.label in PACKAGES]
    rows = "".join(f"{sentence.text}\t{sentence.label}\n" for sentence in chosen)
    (folder / "sentences.tsv").write_text(f"text\tlabel\n{rows}", encoding="utf-8")

    learn("embed", folder / "sentences.tsv", folder / "model", 32, batch=768)

    model, texts = qkv.load(folder / "model"), [sentence.text for sentence in chosen[::5]]
    vectors = model.embed(texts, long="truncate")  # (n, D), rows of length 1
    nearest = (vectors @ vectors[0]).argsort()[::-1][1:3]
    print(f"nearest to “{texts[0]}”:")
    print("".join(f"    {texts[i]}\n" for i in nearest), end="")
    for group in model.cluster(texts, k=4).clusters:
        print(f"{group.size:>4}  {group.name}")


if __name__ == "__main__":
    main()
