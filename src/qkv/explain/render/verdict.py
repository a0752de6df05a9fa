"""The last word on a worksheet with answers: how many cells are right, and what is wrong."""

from qkv.explain.answers import Slip
from qkv.explain.examples import PRINTED_SHARE
from qkv.explain.render.page import slip_line
from qkv.explain.step import Walk
from qkv.explain.worksheet import Worksheet


def verdict(
    walk: Walk, sheet: Worksheet, slips: list[Slip], precision: int, notes: bool = False
) -> str:
    judged = sum(int((answer.value == answer.value).sum()) for answer in sheet.answers.values())
    right, names = judged - len(slips), ", ".join(sheet.answers)
    lines = [f"{right} of {judged} written cells are right ({names})."]
    lines += [f"  ✗ {slip_line(walk, slip, precision)}" for slip in slips]
    return "\n".join([*lines, *(_share(walk) if notes else [])])


def _share(walk: Walk) -> list[str]:
    """The notes' own conclusion, held against the weights."""
    share = 100 * float(walk["weights"].value[0, 0])
    holds = "holds" if round(share) == PRINTED_SHARE else "does not hold"
    return [
        f'"write is {PRINTED_SHARE} % similar to itself" {holds}: '
        f"weights(write, write) = {share:.2f} %."
    ]
