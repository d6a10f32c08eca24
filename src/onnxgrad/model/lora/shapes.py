"""The shapes of a branch in the graph's layout."""

from __future__ import annotations

from onnxgrad.model.lora.layers import Layer


def shape_of(layer: Layer, part: str, r: int) -> tuple[int, ...]:
    """Return the shape of "a", "b" or "m" for rank r."""
    if part == "m":
        return (layer.fan_out,)
    if layer.kind == "conv":
        ones = (1,) * len(layer.kernel)
        return (r, layer.fan_in, *layer.kernel) if part == "a" else (layer.fan_out, r, *ones)
    return (layer.fan_in, r) if part == "a" else (r, layer.fan_out)


def rank_axis(layer: Layer, part: str) -> int:
    """Return which axis of "a" or "b" the rank is."""
    return int((part == "a") != (layer.kind == "conv"))
