"""Tensors in safetensors files, located without reading them and read without trusting them."""

from qkv.weights.weights import Weights, open_weights

__all__ = ["Weights", "open_weights"]
