"""Train an encoder that fills in a hidden word, and look at its guesses.

python examples/train_masked.py
"""

import tempfile
from pathlib import Path

import torch
from learn import learn

import qkv
from qkv.data import built_in

TEXT = "The hotel was not impressive."


def main() -> None:
    folder = Path(tempfile.mkdtemp())
    short = [review.text for review in built_in("classify") if len(review.text) < 60][:1500]
    (folder / "reviews.txt").write_text("\n".join(short), encoding="utf-8")

    still = {"model": {"encoder": {"dropout": 0.0}}}
    words = {"tokenizer": "wordpiece", "context": 32, "batch": 640, "settings": still}
    learn("masked", folder / "reviews.txt", folder / "model", 160, **words)

    model = qkv.load(folder / "model")
    ids = model.tokenizer.add_special_tokens(model.tokenizer.encode(TEXT))
    for place in range(1, len(ids) - 1):
        hidden = [*ids[:place], model.tokenizer.mask_id, *ids[place + 1 :]]
        with torch.inference_mode():
            shares = model.model(torch.tensor([hidden]))[0, place].softmax(dim=-1)
        guesses = [f"{model.tokenizer.token(i)} {shares[i]:.2f}" for i in shares.topk(3).indices]
        print(f"{model.tokenizer.token(ids[place]):<12} guessed: {', '.join(guesses)}")


if __name__ == "__main__":
    main()
