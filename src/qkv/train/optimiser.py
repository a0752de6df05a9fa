"""Who learns how: matrices, tables, and norms and biases each get the rule that suits them."""

from typing import Annotated, ClassVar, Literal

import torch
from pydantic import Field, PositiveFloat
from torch import nn

from qkv.model.choice import Choice, NotNegative, Share
from qkv.model.embedding import Table
from qkv.model.output import TiedScores
from qkv.train.muon import Muon


class AdamW(Choice):
    """Adam with decoupled weight decay (Loshchilov and Hutter 2019), fused, for everything."""

    copies: ClassVar[int] = 2  # of the weights, that it keeps: their mean slope and its square
    kind: Literal["adamw"] = "adamw"
    rate: PositiveFloat = 1e-3
    beta1: Share = 0.9
    beta2: Share = 0.95
    decay: NotNegative = 0.1

    def build(self, model: nn.Module) -> list[torch.optim.Optimizer]:
        matrices, tables, rest = _groups(model)
        return [_adamw([*matrices, *tables], self, self.decay), _adamw(rest, self, 0.0)]


class MuonAdamW(Choice):
    """Muon for the matrices inside the layers, AdamW for tables, norms and biases."""

    copies: ClassVar[int] = 2  # at most
    kind: Literal["muon"] = "muon"
    matrix_rate: PositiveFloat = 0.02
    momentum: Share = 0.95
    matrix_decay: NotNegative = 0.1
    rate: PositiveFloat = 5e-3
    beta1: Share = 0.9
    beta2: Share = 0.95
    decay: NotNegative = 0.0

    def build(self, model: nn.Module) -> list[torch.optim.Optimizer]:
        matrices, tables, rest = _groups(model)
        muon = Muon(matrices, self.matrix_rate, self.momentum, self.matrix_decay)
        return [muon, _adamw(tables, self, self.decay), _adamw(rest, self, 0.0)]


OptimiserChoice = Annotated[AdamW | MuonAdamW, Field(discriminator="kind")]


def _adamw(
    parameters: list[nn.Parameter], choice: AdamW | MuonAdamW, decay: float
) -> torch.optim.Optimizer:
    # An optimiser without parameters is an error in torch; a group of none is not.
    group = [{"params": parameters}]
    betas = (choice.beta1, choice.beta2)
    return torch.optim.AdamW(group, choice.rate, betas, weight_decay=decay, fused=True)


def _groups(model: nn.Module) -> tuple[list[nn.Parameter], list[nn.Parameter], list[nn.Parameter]]:
    """Matrices of the layers, tables of tokens and positions, and norms and biases."""
    matrices, tables, rest = list[nn.Parameter](), list[nn.Parameter](), list[nn.Parameter]()
    for name, parameter in model.named_parameters():
        owner = model.get_submodule(name.rpartition(".")[0])
        if not parameter.requires_grad:
            continue  # frozen
        if parameter.dim() < 2:
            rest.append(parameter)
        elif isinstance(owner, Table | TiedScores) or name.endswith("position.weight"):
            tables.append(parameter)
        elif parameter.dim() == 2:
            matrices.append(parameter)
        else:
            rest.append(parameter)
    return matrices, tables, rest
