"""Attention in ten lines of NumPy, and the library's two kernels, which give the same numbers.

python examples/attention_by_hand.py
"""

import numpy as np
import torch

import qkv

WORDS = ["write", "a", "poem"]


def main() -> None:
    q, k, v = np.random.default_rng(7).normal(size=(3, len(WORDS), 4))  # a row for each word
    scores = q @ k.T / np.sqrt(k.shape[1])  # how well each query matches each key
    scores[np.triu_indices(len(WORDS), k=1)] = -np.inf  # no word sees the words after it
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    weights /= weights.sum(axis=1, keepdims=True)  # every row sums to 1
    mixed = weights @ v  # a mean of the values each word looks at

    print("query ↓ key →" + "".join(f"{word:>8}" for word in WORDS))
    for word, row in zip(WORDS, weights, strict=True):
        print(f"{word:<13}" + "".join(f"{weight:8.3f}" for weight in row))

    given = [torch.tensor(x)[None, None] for x in (q, k, v)]  # (batch, heads, words, width)
    fused = qkv.attend(*given, mask=qkv.Mask.causal())[0, 0].numpy()
    print(f"largest difference from the fused kernel: {np.abs(fused - mixed).max():.1e}")


if __name__ == "__main__":
    main()
