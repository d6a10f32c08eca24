"""An adapter that is there already, as a start: whose layers it means, and its numbers in the graph's layout."""

from __future__ import annotations

import dataclasses
import difflib
import math
from pathlib import Path
from typing import Any

import numpy as np

from onnxgrad.errors import AdapterError
from onnxgrad.model.lora import matrices, ort_file, peft
from onnxgrad.model.lora.layers import Layer
from onnxgrad.model.lora.settings import Lora, is_number
from onnxgrad.model.lora.shapes import shape_of

_ENDINGS = {
    ".lora_A.weight": "a", ".lora_B.weight": "b", ".lora_embedding_A": "a",
    ".lora_embedding_B": "b", ".lora_magnitude_vector": "m", ".lora_magnitude_vector.weight": "m",
    ".lora_gain": "g",
}  # fmt: skip
_PATTERNS = ("rank_pattern", "alpha_pattern")


@dataclasses.dataclass
class Start:
    """What an adapter brings: settings, layers, the tensors of each branch, weights trained in full."""

    lora: Lora
    layers: list[Layer]
    parts: dict[str, dict[str, np.ndarray]]  # layer -> "a", "b", "m"
    full: dict[str, np.ndarray]


def read(lora: Lora, layers: list[Layer]) -> Start:
    """Read `lora.start` for a model with these layers.

    Rank, alpha and variant are the adapter's own; an .onnx_adapter file has alpha in its numbers, and gets
    alpha = r. Raises AdapterError where it is damaged or of another model.
    """
    path = Path(lora.start)
    if path.is_dir():
        config, tensors = peft.read(path)
        layout = peft.to_graph
    elif path.exists():
        config, tensors = {}, ort_file.read(path)
        layout = _as_it_is
    else:
        raise AdapterError(f"the adapter {path} does not exist")
    parts, full = _sorted(path, tensors, layers)
    found = [layer for layer in layers if layer.name in parts]
    for layer in found:
        own = parts[layer.name]
        parts[layer.name] = {k: layout(layer, k, a) for k, a in own.items()}
    start = Start(_settings(path, lora, config, found, parts), found, parts, full)
    for layer in found:
        _complete(path, layer, start)
    return start


def _as_it_is(layer: Layer, part: str, array: np.ndarray) -> np.ndarray:
    return array


def _sorted(path: Path, tensors: dict[str, np.ndarray], layers: list[Layer]) -> tuple[dict, dict]:
    """Give each tensor to its layer; what is not a part of a branch is a weight trained in full."""
    parts: dict[str, dict[str, np.ndarray]] = {}
    full: dict[str, np.ndarray] = {}
    for name, array in sorted(tensors.items()):
        ending = next((e for e in _ENDINGS if name.endswith(e)), None)
        if ending is None:
            full[name] = array
            continue
        layer = _layer(path, name.removesuffix(ending), layers)
        parts.setdefault(layer.name, {})[_ENDINGS[ending]] = array
    if not parts:
        raise AdapterError(f"the adapter {path} holds no branch: none of its tensors is a lora_A")
    return parts, full


def _layer(path: Path, module: str, layers: list[Layer]) -> Layer:
    """The layer of a module's name; wrappers differ in what they put before it."""
    exact = [x for x in layers if x.name == module]
    near = exact or [
        x for x in layers if x.name.endswith(f".{module}") or module.endswith(f".{x.name}")
    ]
    if len(near) == 1:
        return near[0]
    names = [x.name for x in layers]
    close = difflib.get_close_matches(module, names, n=1, cutoff=0.3) or names[:1]
    raise AdapterError(
        f"the adapter {path} is of another model: it adapts {module!r}, and the nearest layer of this "
        f"one is {close[0]!r}"
    )


def _settings(
    path: Path, lora: Lora, config: dict[str, Any], found: list[Layer], parts: dict
) -> Lora:
    for name in _PATTERNS:
        if config.get(name):
            raise AdapterError(
                f"the adapter {path} has a {name}: ranks and alphas that differ by layer are not supported"
            )
    if any("a" not in parts[x.name] or "b" not in parts[x.name] for x in found):
        lacking = next(x.name for x in found if not {"a", "b"} <= set(parts[x.name]))
        raise AdapterError(f"the adapter {path} is incomplete: {lacking!r} lacks lora_A or lora_B")
    first = found[0]
    shape = parts[first.name]["a"].shape
    r = shape[0] if first.kind == "conv" else shape[-1]
    dora = bool(config.get("use_dora")) or any({"m", "g"} & set(parts[x.name]) for x in found)
    variant = "dora" if dora else "rslora" if config.get("use_rslora") else "lora"
    alpha = config.get("lora_alpha", r)
    if dora and config.get("use_rslora") and is_number(alpha):
        alpha *= math.sqrt(r)  # both at once: the same scale, said in the words of one
    try:
        targets = tuple(x.name for x in found)
        return dataclasses.replace(lora, r=int(r), alpha=alpha, variant=variant, targets=targets)
    except AdapterError as error:
        raise AdapterError(f"the adapter {path}: {error}") from error


def _complete(path: Path, layer: Layer, start: Start) -> None:
    """Check the shapes of a branch, and make DoRA's m from a file that holds g."""
    parts, lora = start.parts[layer.name], start.lora
    for part in "ab":
        expected, got = shape_of(layer, part, lora.r), parts[part].shape
        if got != expected:
            raise AdapterError(
                f"the adapter {path} is of another model: lora_{part.upper()} of {layer.name!r} has shape "
                f"{list(got)}, and the layer takes {list(expected)}"
            )
    if "g" in parts:
        new = matrices.matrix(layer) + matrices.delta(layer, parts["a"], parts["b"], lora.scale)
        parts["m"] = parts.pop("g").reshape(-1) * np.sqrt(np.square(new).sum(0))
    if lora.variant == "dora" and parts.get("m", np.zeros(0)).size != layer.fan_out:
        raise AdapterError(
            f"the adapter {path}: {layer.name!r} lacks its magnitudes, one per output"
        )
