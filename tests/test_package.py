"""The package's front door: what it exports is there, and each name has one home."""

import subprocess
import sys

import pytest

import qkv


@pytest.mark.parametrize("name", qkv.__all__)
def test_every_exported_name_exists(name: str) -> None:
    assert getattr(qkv, name) is not None


def test_every_lazy_name_is_exported() -> None:
    assert set(qkv._HOME) | {"__version__"} == set(qkv.__all__) == set(dir(qkv))


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'atend'"):
        _ = qkv.atend  # type: ignore[attr-defined]


def test_it_runs_as_a_module() -> None:
    ran = subprocess.run([sys.executable, "-m", "qkv", "--version"], capture_output=True, text=True)
    assert ran.stdout.strip() == f"qkv {qkv.__version__}"


def test_the_bare_mathematics_is_one_call() -> None:
    import torch

    q, k, v = torch.randn(3, 2, 5, 7, 11)
    out = qkv.attend(q, k, v, mask=qkv.Mask.causal())
    assert torch.allclose(out, qkv.reference(q, k, v, qkv.Mask.causal()).output, atol=1e-6)
