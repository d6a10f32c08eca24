"""Pictures as bytes [height, width, channels]: decoded, resized, cut, turned. The only file that knows Pillow."""

from __future__ import annotations

import io
import warnings
from pathlib import Path

import numpy as np

from onnxgrad.errors import DataError, FileError
from onnxgrad.files import limits
from onnxgrad.files.paths import read_bytes

ENDINGS = {".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff"}
# Of what Pillow reads: not all of it, because some are programs (EPS is run by Ghostscript).
FORMATS = ("PNG", "JPEG", "BMP", "GIF", "WEBP", "TIFF")
MODES = {1: "L", 3: "RGB", 4: "RGBA"}
# As Pillow numbers them, which is how preprocessor_config.json does.
RESAMPLES = {"nearest": 0, "lanczos": 1, "bilinear": 2, "bicubic": 3, "box": 4, "hamming": 5}


def look(path: Path) -> tuple[tuple[int, int], int]:
    """Height and width of a picture as a viewer shows it, and its channels: 1 or 3."""
    image = _upright(_open(path), path)
    return (image.size[1], image.size[0]), 1 if image.mode in (
        "L",
        "1",
        "I",
        "F",
    ) or image.mode.startswith("I;16") else 3


def decode(path: Path, channels: int, resize: tuple[int, ...], resample: str) -> np.ndarray:
    """The picture, `resize`d: (side,) is the shorter side, (height, width) both, () leaves it."""
    try:
        opened = _open(path)
        wide = opened.mode.startswith("I;16") or (opened.mode, opened.format) == ("I", "PNG")
        image = _upright(opened, path)
        image = _in_bytes(image, wide, path).convert(MODES[channels])
        size = target_size((image.size[1], image.size[0]), resize)
        limits.check(
            "pixels", size[0] * size[1], f"{path} becomes {size[0]:,} × {size[1]:,} pixels"
        )
        if (size[1], size[0]) != image.size:
            image = image.resize((size[1], size[0]), RESAMPLES[resample])
    except (DataError, FileError):
        raise
    except Exception as error:
        raise DataError(f"{path} cannot be read as an image: {error}") from error
    return np.array(np.atleast_3d(np.asarray(image, np.uint8)))


def _in_bytes(image, wide: bool, path: Path):
    """A picture of 16 bits in 8: Pillow itself makes everything above 255 white."""
    if wide:
        return _image(
            ((np.asarray(image).astype(np.uint32) + 128) // 257).astype(np.uint8)[..., None]
        )
    if image.mode in ("I", "F"):
        raise DataError(
            f"{path} holds numbers of 32 bits, which do not say what is white; expected 8 or 16 bits, or arrays (.npy)"
        )
    return image


def target_size(size: tuple[int, int], resize: tuple[int, ...]) -> tuple[int, int]:
    """Height and width after resizing; the longer side is rounded down, as elsewhere."""
    if len(resize) != 1:
        return (resize[0], resize[1]) if resize else size
    short, (height, width) = resize[0], size
    if height <= width:
        return short, int(short * width / height)
    return int(short * height / width), short


def centre(pixels: np.ndarray, crop: tuple[int, ...]) -> np.ndarray:
    """The middle of a picture; what it does not have is black."""
    if not crop or pixels.shape[:2] == tuple(crop):
        return pixels
    (height, width), (h, w) = pixels.shape[:2], crop
    if height < h or width < w:
        more = (max(0, h - height), max(0, w - width))
        pixels = np.pad(pixels, [*((m // 2, m - m // 2) for m in more), (0, 0)])
        height, width = pixels.shape[:2]
    top, left = (height - h) // 2, (width - w) // 2
    return pixels[top : top + h, left : left + w]


def cut(pixels: np.ndarray, box: tuple[float, ...], size: tuple[int, int]) -> np.ndarray:
    """A part of a picture, (left, top, right, bottom), brought to height and width `size`."""
    return _array(_image(pixels).resize((size[1], size[0]), RESAMPLES["bilinear"], box=box))


def turned(pixels: np.ndarray, degrees: float) -> np.ndarray:
    """The picture turned about its middle; the corners that it does not fill are black."""
    return _array(_image(pixels).rotate(degrees, RESAMPLES["bilinear"]))


def _image(pixels: np.ndarray):
    from PIL import Image

    plain = np.ascontiguousarray(pixels)
    return Image.fromarray(plain[..., 0] if plain.shape[2] == 1 else plain)


def _array(image) -> np.ndarray:
    return np.array(np.atleast_3d(np.asarray(image, np.uint8)))


def _upright(image, path: Path):
    """The picture as a viewer shows it: cameras write how they were held beside the pixels (EXIF)."""
    from PIL import ImageOps

    try:
        return ImageOps.exif_transpose(image)
    except Exception as error:
        raise DataError(f"{path} cannot be read as an image: {error}") from error


def _open(path: Path):
    """The picture, not yet decoded; one that would not fit is refused by what its header says."""
    try:
        from PIL import Image
    except ImportError:
        raise DataError(
            f"{path}: reading images needs Pillow: pip install 'onnxgrad[images]'"
        ) from None
    content = io.BytesIO(read_bytes(path, "a picture"))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)  # the limit is ours
            image = Image.open(content, formats=FORMATS)
    except Exception as error:  # Pillow's readers raise what they like: SyntaxError, struct.error
        raise DataError(f"{path} cannot be read as an image: {error}") from error
    width, height = image.size
    limits.check("pixels", width * height, f"{path} has {width:,} × {height:,} pixels")
    return image
