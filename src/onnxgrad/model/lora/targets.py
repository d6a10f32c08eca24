"""Which layers a setting means: by name or glob, else by what people adapt in models of that kind."""

from __future__ import annotations

import difflib
import fnmatch
from collections.abc import Sequence

from onnxgrad.errors import AdapterError
from onnxgrad.model.lora.layers import Layer

ALL_LINEAR = "all-linear"
# The last part of a module's name, as the common families of models have it: query and value, or both in one.
_QUERY_VALUE = (
    ("q_proj", "v_proj"), ("query", "value"), ("q_lin", "v_lin"), ("q", "v"),
    ("c_attn",), ("qkv_proj",), ("query_key_value",), ("qkv",), ("Wqkv",), ("in_proj",),
)  # fmt: skip


def choose(layers: Sequence[Layer], targets: Sequence[str]) -> tuple[list[Layer], str]:
    """Return the layers that `targets` mean, and in words why. Raises AdapterError where one means none."""
    if not layers:
        raise AdapterError(
            "lora: the model has no layer that can carry a branch: no product or convolution "
            "with a constant weight"
        )
    if not targets:
        return default(layers)
    chosen: set[int] = set()
    for target in targets:
        found = [i for i, layer in enumerate(layers) if matches(layer, target)]
        if not found:
            raise AdapterError(_unknown(target, layers))
        chosen.update(found)
    return [layers[i] for i in sorted(chosen)], f"targets {', '.join(targets)}"


def matches(layer: Layer, target: str) -> bool:
    """Say whether a target means a layer: a name of it, a glob, or the end of its module's path."""
    if target == ALL_LINEAR:
        return is_linear(layer)
    ends = any(n == target or n.endswith(f".{target}") for n in layer.names)
    return ends or any(fnmatch.fnmatchcase(n, target) for n in layer.names)


def is_linear(layer: Layer) -> bool:
    """Say whether a layer is a matrix product, a convolution of one point included."""
    return layer.kind in ("linear", "packed") or (
        layer.kind == "conv" and all(k == 1 for k in layer.kernel)
    )


def default(layers: Sequence[Layer]) -> tuple[list[Layer], str]:
    """Query and value of attention; else every linear layer but the last; else every convolution."""
    packed = [layer for layer in layers if layer.kind == "packed"]
    if packed:
        return packed, "the packed query, key and value of Attention"
    for names in _QUERY_VALUE:
        found = [x for x in layers if is_linear(x) and x.name.rsplit(".", 1)[-1] in names]
        if found:
            return found, f"{' and '.join(names)} of attention"
    last = layers[-1]
    linear = [x for x in layers if is_linear(x) and x is not last]
    if linear:
        return linear, "every linear layer but the last, for want of an attention with known names"
    rest = [x for x in layers if x.kind == "conv" and x is not last] or [
        x for x in layers if x.kind != "embedding"
    ]
    return rest or list(layers), "every convolution, for want of linear layers"


def _unknown(target: str, layers: Sequence[Layer]) -> str:
    names = [layer.name for layer in layers]
    ends = list(dict.fromkeys(n.rsplit(".", 1)[-1] for n in names))
    near = difflib.get_close_matches(target, [*ends, *names], n=3, cutoff=0.4) or ends[:3]
    return (
        f"lora: the target {target!r} matches none of the model's {len(layers)} layers; "
        f"the nearest are {', '.join(map(repr, near))}"
    )
