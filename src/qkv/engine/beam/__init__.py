"""Beam search and greedy search for encoder–decoders."""

from qkv.engine.beam.hypotheses import Hypothesis
from qkv.engine.beam.search import beam_search

__all__ = ["Hypothesis", "beam_search"]
