"""Which jobs a family of models can be trained for, said where another was asked for."""

from qkv.errors import TrainingError
from qkv.model import Config

FAMILY = {
    "encoder_only": ("an encoder", "masked, classify or embed"),
    "decoder_only": ("a decoder", "language"),
    "encoder_decoder": ("an encoder–decoder", "translate"),
}


def unsuited(job: str, needs: str, config: Config) -> TrainingError:
    """What the job needs, what the model is, and what it can learn."""
    it_is, suits = FAMILY[config.kind]
    return TrainingError(
        f"{job} needs {FAMILY[needs][0]}, but this model is {it_is}; it can learn {suits}"
    )
