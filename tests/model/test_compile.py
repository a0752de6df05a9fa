"""A whole forward pass is one graph for torch.compile: nothing in it stops to look at a number."""

import pytest
import torch

from qkv.model import build, preset

# torch's tracer instantiates an autograd function on its way and then warns of that itself.
pytestmark = pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")

IDS = torch.randint(1024, (2, 19), generator=torch.Generator().manual_seed(0))
LENGTHS = torch.tensor([19, 7])


@pytest.mark.slow
@pytest.mark.parametrize("name", ["language-tiny", "classify-tiny", "embed-tiny", "masked-tiny"])
@pytest.mark.parametrize("lengths", [None, LENGTHS])
def test_a_model_of_one_text_is_one_graph(name: str, lengths: torch.Tensor | None) -> None:
    model = build(preset(name)).eval()
    whole = torch.compile(model, backend="eager", fullgraph=True)
    torch.testing.assert_close(whole(IDS, lengths), model(IDS, lengths))


def test_a_translator_is_one_graph() -> None:
    model = build(preset("translate-tiny")).eval()
    whole = torch.compile(model, backend="eager", fullgraph=True)
    target = IDS[:, :11]
    torch.testing.assert_close(whole(IDS, target, LENGTHS), model(IDS, target, LENGTHS))
