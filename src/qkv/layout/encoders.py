"""What public encoders have in common: their heads, and the words they use for activations."""

from collections.abc import Collection
from typing import Any, Literal

from qkv.errors import ConfigError
from qkv.layout.given import Given
from qkv.layout.layout import OtherFamilyError
from qkv.model import Classify, EncoderOnly, MaskedToken, Mean, TextVector
from qkv.model.output import Output

Head = Literal["vector", "pooler", "masked", "labels"]
ENDINGS: dict[str, Head] = {
    "PoolerModel": "pooler",
    "ForMaskedLM": "masked",
    "ForPreTraining": "masked",
    "ForSequenceClassification": "labels",
    "Model": "vector",
}
SENTENCE = TextVector(pooling=Mean(), unit=False)  # what a body without a head is used for


def head_of(given: Given) -> Head:
    """Which output the checkpoint's class has."""
    said = given.items("architectures")
    if not said:
        return "vector"
    name = str(said[0])
    for ending, head in ENDINGS.items():
        if name.endswith(ending):
            return head
    raise ConfigError(
        f"{given.place}: {name} has an output that cannot be carried; those that can end in "
        f"{', '.join(ending for ending in ENDINGS if ending != 'PoolerModel')}"
    )


def labels_of(given: Given) -> tuple[str, ...]:
    """The names of the labels in the order of their numbers."""
    names = given.fields.get("id2label")
    if names is None:
        names = {str(i): f"LABEL_{i}" for i in range(given.size("num_labels", 2, 100_000))}
    if not isinstance(names, dict) or set(names) != {str(i) for i in range(len(names))}:
        raise given.wrong("id2label", names, "one name for each label, numbered from 0")
    if given.fields.get("problem_type") not in (None, "single_label_classification"):
        raise ConfigError(
            f"{given.place}: problem_type is {given.word('problem_type')}, but only one label of "
            f"several can be carried (single_label_classification)"
        )
    return tuple(str(names[str(i)]) for i in range(len(names)))


def label_fields(output: Output) -> dict[str, Any]:
    if not isinstance(output, Classify):
        return {}
    names = dict(enumerate(output.labels))
    return {
        "id2label": {str(i): name for i, name in names.items()},
        "label2id": {name: i for i, name in names.items()},
    }


def architecture(family: str, output: Output) -> str:
    """The class that has this output, as in BertForMaskedLM."""
    if isinstance(output, MaskedToken):
        return f"{family}ForMaskedLM"
    if isinstance(output, Classify):
        return f"{family}ForSequenceClassification"
    return f"{family}Model"


def expect_encoder(config: object) -> EncoderOnly:
    if not isinstance(config, EncoderOnly):
        raise OtherFamilyError("this layout is for encoders")
    return config


def masked_twins(output: Output, place: str, table: str) -> dict[str, str]:
    """Second names in a masked head at `place`, if its matrix is the embedding table."""
    if not isinstance(output, MaskedToken) or not output.tied:
        return {}
    return {f"{place}.decoder.weight": table, f"{place}.decoder.bias": f"{place}.bias"}


def masked_copies(output: Output, place: str) -> dict[str, str]:
    """A masked head with a matrix of its own has a second bias, which is stored but never used."""
    if not isinstance(output, MaskedToken) or output.tied:
        return {}
    return {f"{place}.bias": f"{place}.decoder.bias"}


def refuse_pooler(given: Given, family: str) -> None:
    """Raise if a pooler is asked for that checkpoints of this family never have."""
    if head_of(given) == "pooler":
        raise ConfigError(
            f"{given.place}: {family} has no pooler of its own; take the mean of the states or "
            f"the first one instead"
        )


def dropped_attention(given: Given, name: str, absent: float) -> list[str]:
    """A note on dropout of attention weights, which is not carried."""
    dropped = given.share(name, absent)
    if not dropped:
        return []
    return [f"dropout of attention weights ({dropped:g}), which only training would use"]


def has_any(tensors: Collection[str], *names: str) -> bool:
    return any(name in tensors for name in names)
