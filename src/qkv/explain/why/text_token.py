"""The tables of a token's explanation: how surprising the prompt was, and what each layer said."""

from qkv.explain.render.page import Table
from qkv.explain.why.given import Likely
from qkv.explain.why.token_reason import TokenReason
from qkv.explain.why.wording import number, share

SHOWN = 3  # alternatives


def title(reason: TokenReason) -> list[str]:
    """Which token against which, and how likely both are."""
    token, against = (
        f"“{one.token}” ({share(one.probability)})" for one in (reason.token, reason.against)
    )
    return [
        f"why {token} rather than {against}?  log-odds {number(reason.difference)}",
        f"next: {_several(reason.following)}",
        f"to hide a word: {reason.hidden}",
    ]


def surprise_table(reason: TokenReason) -> Table:
    """Each token of the prompt, how likely it was, and what else might have come."""
    rows, cells = [], []
    for token in reason.given:
        rows.append(_shown(token.token))
        if token.probability is None or token.surprise is None:
            cells.append(["", "", "nothing stands before it"])
        else:
            bits = f"{token.surprise:.1f}"
            cells.append([share(token.probability), bits, _several(token.alternatives[:SHOWN])])
    return Table("token", tuple(rows), ("likely", "bits", "expected"), cells)


def layer_table(reason: TokenReason) -> Table:
    """The likeliest token after each layer, and how likely the asked one was there."""
    names = ["embedding", *(f"layer {seen.layer - 1}" for seen in reason.layers[1:])]
    cells = [
        [_shown(seen.best), share(seen.best_probability), share(seen.probability), f"{seen.rank}"]
        for seen in reason.layers
    ]
    columns = ("would say", "likely", f"{_shown(reason.token.token)} likely", "rank")
    return Table("after", tuple(names), columns, cells)


def _several(tokens: tuple[Likely, ...]) -> str:
    return ", ".join(f"{_shown(one.token)} {share(one.probability)}" for one in tokens)


def _shown(token: str) -> str:
    return f"“{token}”"
