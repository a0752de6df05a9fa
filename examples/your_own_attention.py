"""An attention variant of your own: it trains, generates, is traced, checked, saved and loaded.

    python examples/your_own_attention.py

Gated attention (Qiu et al. 2025, "Gated Attention for Large Language Models"): what each head
found is multiplied by a sigmoid of the input, so that a head can choose to add nothing.
"""

import tempfile
from typing import Literal

import torch
from torch import Tensor, nn

import qkv
from qkv.attention import join_heads, split_heads
from qkv.model import AttentionConfig, AttentionCore
from qkv.model.view import View

TEXT = "the cat sat on the mat. the dog sat on the log. " * 8


class GatedAttention(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.project = nn.Linear(width, 3 * width, bias=False)
        self.gate = nn.Linear(width, width, bias=False)
        self.core = AttentionCore(scale=None)  # softmax(Q·Kᵀ/√E + mask)·V, which checks can watch
        self.output = nn.Linear(width, width, bias=False)

    def forward(self, x: Tensor, view: View) -> Tensor:
        q, k, v = (split_heads(part, self.heads) for part in self.project(x).chunk(3, dim=-1))
        k, v = view.cache.append(view.rope.rotate(k), v)  # (B, H, S, E)
        heads = self.core(view.rope.rotate(q), k, v, view.mask)  # (B, H, T, E)
        return self.output(join_heads(heads) * self.gate(x).sigmoid())


class Gated(AttentionConfig):  # registers itself: config.json may now say kind = "gated"
    kind: Literal["gated"] = "gated"
    heads: int

    def build(self, width: int, cross: bool = False) -> nn.Module:
        return GatedAttention(width, self.heads)


def main() -> None:
    tokenizer = qkv.Tokenizer.train("characters", [TEXT], vocab_size=64)
    config = qkv.preset("language-tiny")
    config = config.model_copy(
        update={"decoder": config.decoder.model_copy(update={"attention": Gated(heads=4)})}
    )
    box = qkv.build(config, tokenizer)
    model, ids = box.model.train(), torch.tensor([tokenizer.encode(TEXT)[:256]])
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for _ in range(60):
        loss = nn.functional.cross_entropy(model(ids[:, :-1])[0], ids[0, 1:])
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    model.eval()
    print(f"loss after 60 steps: {loss:.2f}")
    print(box.generate("the cat ", max_tokens=24, temperature=0.0).finish().text)
    print(box.trace("the cat").graph.nodes["decoder.0.attention"].operation.equation)
    report = qkv.check(box)
    print(f"all checks hold: {report.ok}")
    folder = tempfile.mkdtemp() + "/model"
    qkv.Bundle(model, tokenizer).save(folder)
    print(qkv.load(folder).model.config.decoder.attention)


if __name__ == "__main__":
    main()
