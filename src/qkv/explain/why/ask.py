"""Why a model answered a text as it did, whatever kind of answer that is."""

from qkv.engine.purpose import purpose_of
from qkv.errors import UsageError
from qkv.explain.why.faithfulness import SEED
from qkv.explain.why.label import why_label
from qkv.explain.why.label_reason import LabelReason
from qkv.explain.why.token import why_token
from qkv.explain.why.token_reason import TokenReason
from qkv.explain.why.translation import why_translation
from qkv.explain.why.translation_reason import TranslationReason
from qkv.explain.why.vector import VectorReason, why_vector
from qkv.model import Classify, Decoder, Model, Translator
from qkv.text import Tokenizer

Reason = LabelReason | TokenReason | TranslationReason | VectorReason


def why(
    model: Model,
    tokenizer: Tokenizer,
    text: str,
    *,
    label: str | None = None,
    token: str | int | None = None,
    against: str | int | None = None,
    target: str | None = None,
    seed: int = SEED,
) -> Reason:
    """The reason that suits the model: for a label, the next token, a translation or a vector.

    What is asked for beside the text must suit it too: a label of a classifier, a token (and the
    one against it) of a decoder, a target of a translator.
    """
    given = {"label": label, "token": token, "against": against, "target": target}
    if isinstance(model, Translator):
        _expect(model, given, "target")
        return why_translation(model, tokenizer, text, target, seed=seed)
    if isinstance(model, Decoder):
        _expect(model, given, "token", "against")
        return why_token(model, tokenizer, text, token, against, seed=seed)
    if isinstance(model.config.output, Classify):
        _expect(model, given, "label")
        return why_label(model, tokenizer, text, label, seed=seed)
    _expect(model, given)
    return why_vector(model, tokenizer, text, seed=seed)


def _expect(model: Model, given: dict[str, str | int | None], *known: str) -> None:
    for name, value in given.items():
        if value is not None and name not in known:
            raise UsageError(
                f"{name}={value!r} does not suit this model: it is {purpose_of(model).it_is}"
            )
