"""preprocessor_config.json, which lies beside models of the Hugging Face Hub: how their inputs are made."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from onnxgrad.data.images import PictureForm
from onnxgrad.data.pixels import RESAMPLES
from onnxgrad.data.sounds import SoundForm
from onnxgrad.errors import DataError
from onnxgrad.files.text import read_json

CONFIG = "preprocessor_config.json"


def read_config(path: Path) -> tuple[PictureForm | None, SoundForm | None]:
    """What the file says of pictures, and of sounds; None where it says nothing. Raises DataError."""
    found = read_json(path)
    if not isinstance(found, dict):
        raise DataError(f"{path} holds a {type(found).__name__}, expected settings")
    try:
        told = "image_mean" in found or "size" in found
        pictures = _pictures(found).checked() if told else None
        sounds = None
        if "sampling_rate" in found and found.get("feature_size", 1) == 1:
            normalize = bool(found.get("do_normalize", False))
            sounds = SoundForm(_whole(found["sampling_rate"]), normalize=normalize).checked()
    except (TypeError, ValueError, KeyError, ArithmeticError) as error:
        raise DataError(
            f"{path} is not understood: {error}; flags such as --resize say the same"
        ) from error
    return pictures, sounds


def _pictures(found: dict[str, Any]) -> PictureForm:
    """In the order of that library: resize, crop in the middle, rescale, normalise."""
    resize, crop = (), ()
    if found.get("do_resize", True) and "size" in found:
        resize = _sides(found["size"], alone=1)
    if found.get("do_center_crop", False) and "crop_size" in found:
        crop = _sides(found["crop_size"], alone=2)
    share = found.get("crop_pct")
    if share and len(resize) == 1 and not crop:  # a ConvNeXt: cut from a larger picture, below 384
        side = resize[0]
        resize, crop = ((int(side / share),), (side, side)) if side < 384 else ((side, side), ())
    by_number = {number: name for name, number in RESAMPLES.items()}
    mean, std = (), ()
    if found.get("do_normalize", True) and "image_mean" in found:
        mean, std = (
            tuple(float(v) for v in _listed(found[k])) for k in ("image_mean", "image_std")
        )
    factor = float(found.get("rescale_factor", 1 / 255))
    return PictureForm(
        resize, crop, by_number[int(found.get("resample", RESAMPLES["bilinear"]))],
        factor if found.get("do_rescale", True) else 1.0, mean, std,
    )  # fmt: skip


def _listed(value: Any) -> list:
    return value if isinstance(value, list) else [value]


def _sides(value: Any, alone: int) -> tuple[int, ...]:
    """{"shortest_edge": 256}, {"height": 224, "width": 224}, or a number, which means `alone` sides."""
    if isinstance(value, dict):
        if "shortest_edge" in value:
            return (_whole(value["shortest_edge"]),)
        return _whole(value["height"]), _whole(value["width"])
    if isinstance(value, list):
        return tuple(_whole(side) for side in value[-2:])
    return (_whole(value),) * alone


def _whole(value: Any) -> int:
    number = int(value)
    if number < 1:
        raise ValueError(f"{value!r} is not a size")
    return number
