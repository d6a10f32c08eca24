"""Adapters as peft keeps them: a folder with adapter_model.safetensors and adapter_config.json.

base_model.model.<module>.lora_A.weight          [r, in], [r, in, k...] of a convolution
base_model.model.<module>.lora_B.weight          [out, r], [out, r, 1...]
base_model.model.<module>.lora_embedding_A, _B   [r, rows], [size, r]
base_model.model.<module>.lora_magnitude_vector  [out], [1, out, 1...]
base_model.model.<tensor>                        what is trained in full
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from safetensors.numpy import save

from onnxgrad.errors import AdapterError, DataError
from onnxgrad.files.arrays import read_safetensors
from onnxgrad.files.text import read_json
from onnxgrad.files.write import write_bytes
from onnxgrad.model.lora.layers import Layer

if TYPE_CHECKING:
    from onnxgrad.model.lora.adapter import Adapter

TENSORS, CONFIG = "adapter_model.safetensors", "adapter_config.json"
PREFIX = "base_model.model."


def from_graph(layer: Layer, part: str, array: np.ndarray) -> np.ndarray:
    """Return a tensor of a branch in peft's layout."""
    if layer.kind == "conv":
        shape = (1, -1, *(1 for _ in layer.kernel))
        return array.reshape(shape) if part == "m" else array
    return array if part == "m" else np.ascontiguousarray(array.T)


def to_graph(layer: Layer, part: str, array: np.ndarray) -> np.ndarray:
    """Return a tensor of peft in the graph's layout."""
    if part == "m":
        return array.reshape(-1)
    return array if layer.kind == "conv" else np.ascontiguousarray(array.T)


def tensors_of(adapter: Adapter, tensors: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return the adapter's tensors by peft's names and in its layout."""
    found = {
        PREFIX + name: from_graph(layer, part, tensors[name])
        for layer in adapter.layers
        for part, name in adapter.names(layer).items()
    }
    return {**found, **{PREFIX + n: tensors[n] for n in adapter.saved}}


def config_of(adapter: Adapter, base: str) -> dict[str, Any]:
    """Return adapter_config.json as peft writes it."""
    lora = adapter.lora
    saved = {n.rsplit(".", 1)[0] for n in adapter.saved}
    return {
        "peft_type": "LORA",
        "task_type": None,
        "base_model_name_or_path": base,
        "r": lora.r,
        "lora_alpha": lora.alpha,
        "lora_dropout": lora.dropout,
        "target_modules": sorted(layer.name for layer in adapter.layers),
        "modules_to_save": sorted(saved) or None,
        "use_rslora": lora.variant == "rslora",
        "use_dora": lora.variant == "dora",
        "bias": "none",
        "fan_in_fan_out": False,
        "init_lora_weights": True,
        "inference_mode": True,
        "rank_pattern": {},
        "alpha_pattern": {},
    }


def write(
    folder: str | os.PathLike[str], adapter: Adapter, tensors: Mapping[str, np.ndarray], base: str
) -> None:
    """Write the folder; a file in it is there in full or not at all."""

    folder = Path(folder)
    if folder.exists() and not folder.is_dir():
        raise AdapterError(f"{folder} is a file, expected a folder for the adapter")
    folder.mkdir(parents=True, exist_ok=True)
    arrays = {n: np.ascontiguousarray(a) for n, a in tensors_of(adapter, tensors).items()}
    text = json.dumps(config_of(adapter, base), indent=2) + "\n"
    write_bytes(folder / TENSORS, save(arrays, {"format": "pt"}))
    write_bytes(folder / CONFIG, text.encode())


def read(folder: str | os.PathLike[str]) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Return the config and the tensors of a folder, names without peft's prefix."""

    folder = Path(folder)
    try:
        config = read_json(folder / CONFIG)
        tensors = read_safetensors(folder / TENSORS)
    except FileNotFoundError as error:
        name = CONFIG if not (folder / CONFIG).exists() else TENSORS
        raise AdapterError(f"the adapter {folder} lacks {name}: is it a peft folder?") from error
    except DataError as error:
        raise AdapterError(f"the adapter {folder} is damaged or cut off: {error}") from error
    except (OSError, ValueError) as error:
        raise AdapterError(f"the adapter {folder} cannot be read: {error}") from error
    if not isinstance(config, dict) or config.get("peft_type") != "LORA":
        kind = config.get("peft_type") if isinstance(config, dict) else None
        raise AdapterError(f"the adapter {folder} is of type {kind!r}, expected 'LORA'")
    return config, {n.removeprefix(PREFIX): a for n, a in tensors.items()}
