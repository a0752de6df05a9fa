"""Train an encoder that predicts a masked word, and look at its predictions.

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

    no_dropout = {"model": {"encoder": {"dropout": 0.0}}}
    words = {"tokenizer": "wordpiece", "context_length": 32, "batch": 640, "settings": no_dropout}
    learn("masked", folder / "reviews.txt", folder / "model", 160, **words)

    model = qkv.load(folder / "model")
    ids = model.tokenizer.add_special_tokens(model.tokenizer.encode(TEXT))
    for position in range(1, len(ids) - 1):
        masked = [*ids[:position], model.tokenizer.mask_id, *ids[position + 1 :]]
        with torch.inference_mode():
            probs = model.model(torch.tensor([masked]))[0, position].softmax(dim=-1)
        best = [f"{model.tokenizer.token(i)} {probs[i]:.2f}" for i in probs.topk(3).indices]
        print(f"{model.tokenizer.token(ids[position]):<12} guessed: {', '.join(best)}")


if __name__ == "__main__":
    main()
