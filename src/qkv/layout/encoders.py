"""What public encoders have in common: their outputs, and where these are stored."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from qkv.errors import ConfigError
from qkv.layout.given import Given, Head
from qkv.layout.names import Table
from qkv.model import Classify, MaskedToken, Mean, TextVector
from qkv.model.output import Output

ENDINGS: dict[str, Head] = {
    "ForMaskedLM": "masked",
    "ForPreTraining": "masked",
    "ForSequenceClassification": "labels",
    "Model": "vector",
}
SENTENCE = TextVector(pooling=Mean(), unit=False)  # what a body without a head is used for


def head_of(given: Given) -> Head:
    """The output that is asked for, else the one the checkpoint's class has."""
    if given.head is not None:
        return given.head
    said = [str(name) for name in given.items("architectures")]
    if not said:
        raise given.wrong("architectures", None, 'a class, as in ["BertModel"],')
    return next(head for ending, head in ENDINGS.items() if said[0].endswith(ending))


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


def output_fields(output: Output, dropout: str) -> dict[str, Any]:
    """What configs say of an output; `dropout` is the field for that of a label's network."""
    if isinstance(output, MaskedToken):
        return {"tie_word_embeddings": output.tied}
    if not isinstance(output, Classify):
        return {}
    names = dict(enumerate(output.labels))
    return {
        dropout: output.dropout,
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


def tensors_of(places: Iterable[object]) -> tuple[str, ...]:
    """The tensors at these places, as regular expressions: a bias itself, or a module's two."""
    names = sorted(map(str, places))
    return tuple(re.escape(n) + ("" if n.endswith(".bias") else r"\.(weight|bias)") for n in names)


@dataclass(frozen=True)
class Heads:
    """Where BERT and its kin keep their outputs: a masked head, a pooler, and labels."""

    place: str  # of the masked head: its matrix is `place.decoder`, its bias `place.bias`
    masked: Table
    pooler: Table
    labels: Table

    def table(self, output: Output) -> Table:
        """The rows of this output; a masked head with a matrix of its own has its bias there."""
        if isinstance(output, Classify):
            return self.labels
        if not isinstance(output, MaskedToken):
            return self.pooler if isinstance(output, TextVector) and output.dense else {}
        bias: Table = {"output.output.bias": f"{self.place}.bias"}
        own: Table = {"output.output": f"{self.place}.decoder"}
        return self.masked | (bias if output.tied else own)

    def twins(self, output: Output, table: str) -> dict[str, str]:
        """Second names in the masked head, if its matrix is the embedding table."""
        if not isinstance(output, MaskedToken) or not output.tied:
            return {}
        at = self.place
        return {f"{at}.decoder.weight": table, f"{at}.decoder.bias": f"{at}.bias"}

    def copies(self, output: Output) -> dict[str, str]:
        """An untied masked head has a second bias, which is stored but never used."""
        if not isinstance(output, MaskedToken) or output.tied:
            return {}
        return {f"{self.place}.bias": f"{self.place}.decoder.bias"}

    def unused(self, output: Output) -> tuple[str, ...]:
        """A pooler beside other outputs; beside a text's vector any head."""
        spare = {*self.pooler.values(), f"{self.place}.bias"}
        if isinstance(output, TextVector):
            spare |= {*self.masked.values(), *self.labels.values(), f"{self.place}.decoder"}
        return tensors_of(spare - set(self.table(output).values()))
