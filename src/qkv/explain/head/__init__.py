"""One head of one layer of a model, as a walk like that of the worked example."""

from qkv.explain.head.place import Place, place_of, values_of
from qkv.explain.head.walk import walk_head

__all__ = ["Place", "place_of", "values_of", "walk_head"]
