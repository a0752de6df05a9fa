"""Which vector an encoder has for a text, whatever its output is.

| output | its vector |
|---|---|
| a vector | that vector |
| a label | the pooled states its small network reads, as with `qkv train classify --freeze` |
| a token | the mean of the states, as `qkv train embed --from` begins with |
"""

from copy import copy

from torch import nn

from qkv.engine.purpose import purpose_of
from qkv.errors import UsageError
from qkv.model import Classify, Encoder, Mean, Model, TextVector
from qkv.model.output import Pooled


def with_vectors(model: Model, raw: bool) -> Encoder:
    """The encoder, answering with a vector a text; `raw`: as it was before any normalisation.

    What is not the model itself shares all of its weights.
    """
    if not isinstance(model, Encoder):
        it_is, command = purpose_of(model)
        raise UsageError(f"this model is {it_is}, so it has no vector for a text; use {command}")
    output = model.config.output
    if isinstance(output, TextVector):
        if not (raw and output.unit):
            return model
        plain = output.model_copy(update={"unit": False})
        assert isinstance(model.output, Pooled)
        return _answering(model, plain, model.output.change)
    pooling = output.pooling if isinstance(output, Classify) else Mean()
    return _answering(model, TextVector(pooling=pooling, unit=False), nn.Identity())


def borrowed(model: Model) -> str | None:
    """What a person should know of the vectors, if the model was not made to give any."""
    if isinstance(model.config.output, TextVector):
        return None
    it_is, _ = purpose_of(model)
    return f"this is {it_is}; a vector is what its states make on average, not what it learnt for"


def _answering(model: Encoder, output: TextVector, change: nn.Module) -> Encoder:
    other = copy(model)
    pooled = Pooled(output.pooling, change, nn.Identity()).train(model.training)
    other._modules = {**model._modules, "output": pooled}
    other.config = model.config.model_copy(update={"output": output})
    return other
