"""What if: changes to one pass, put back afterwards. A second trace then shows what they did.

Each edit is a value; `applied` makes it hold inside a `with`. Names go by layers, as in the trace.
"""

from qkv.explain.trace.edits.edit import Edit, is_touched
from qkv.explain.trace.edits.places import NoMask, NoPosition, NoScale
from qkv.explain.trace.edits.values import Changed, HeadOff, TokenReplaced

__all__ = [
    "Changed",
    "Edit",
    "HeadOff",
    "NoMask",
    "NoPosition",
    "NoScale",
    "TokenReplaced",
    "is_touched",
]
