"""Parameters that can have no gradient, and why."""

from torch import nn

from qkv.model import Attention, CrossAttention, Layers, Model
from qkv.model.position.rotary import Turning

SHIFTED = (
    "the biases of keys have none by construction: they change all scores of a row alike, and "
    "softmax does not see that"
)


def shifts(model: Model) -> set[str]:
    """What is added to every key as it is, neither turned nor normed: it adds the same number to
    all scores of a query.
    """
    found = set[str]()
    for name, stack in model.named_children():
        if not isinstance(stack, Layers):
            continue
        turned = any(isinstance(way.position, Turning) for way in stack.ways)
        for path, part in stack.named_modules():
            if not isinstance(part, Attention) or part.mix.cap is not None:
                continue
            if isinstance(part, CrossAttention) or not turned:
                last = "key" if isinstance(part.key_norm, nn.Identity) else "key_norm"
                found.add(f"{name}.{path}.{last}.bias")
    return found & {name for name, _ in model.named_parameters()}
