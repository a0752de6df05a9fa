"""Beam search and greedy search for encoder-decoders."""

from qkv.engine.beam.search import beam_search

__all__ = ["beam_search"]
