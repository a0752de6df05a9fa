"""The last word on a worksheet with answers: how many cells are right, and what is wrong."""

from qkv.explain.answers import Slip
from qkv.explain.examples import PRINTED_SHARE
from qkv.explain.render.page import Look, slip_line
from qkv.explain.worksheet import Worksheet


def verdict(look: Look, sheet: Worksheet) -> str:
    """How many of the written cells are right, and a line for each slip the page has not told."""
    judged = sum(int((answer.value == answer.value).sum()) for answer in sheet.answers.values())
    right, names = judged - len(look.slips), ", ".join(sheet.answers)
    told = look.walk.only(look.steps)
    lines = [f"{right} of {judged} written cells are right ({names})."]
    return "\n".join([*lines, *(_line(look, slip) for slip in look.slips if slip.step not in told)])


def notes_verdict(look: Look, sheet: Worksheet) -> str:
    """The same for the study notes, with their own conclusion held against the weights."""
    share = 100 * float(look.walk["weights"].value[0, 0])
    holds = "holds" if round(share) == PRINTED_SHARE else "does not hold"
    claim = f'"write is {PRINTED_SHARE} % similar to itself" {holds}'
    lines = [verdict(look, sheet), *(_line(look, slip) for slip in look.slips)]
    return "\n".join([*lines, f"{claim}: weights(write, write) = {share:.2f} %."])


def _line(look: Look, slip: Slip) -> str:
    return f"  ✗ {slip_line(look.walk, slip, look.precision)}"
