"""A folder of images, one folder per class, as a table; images are decoded when they are needed."""

from __future__ import annotations

import io
import warnings
from pathlib import Path

import numpy as np

from onnxgrad.data.table import Table
from onnxgrad.errors import DataError, FileError
from onnxgrad.files import limits
from onnxgrad.files.paths import read_bytes

ENDINGS = {".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff"}
CACHE_BYTES = 512 << 20  # decoded images that are kept


def read_images(path: Path) -> Table:
    """Columns `image` and `label`; the labels number the folders in alphabetical order."""
    classes = sorted(p for p in path.iterdir() if p.is_dir() and not p.name.startswith("."))
    files = [
        (file, number)
        for number, folder in enumerate(classes)
        for file in sorted(folder.iterdir())
        if file.suffix.lower() in ENDINGS
    ]
    if not files:
        raise DataError(f"{path} holds no images in folders by class, such as {path}/cat/1.png")
    paths = [file for file, _ in files]
    arrays = {"image": Images(paths), "label": np.array([number for _, number in files])}
    return Table(
        str(path), arrays, where=lambda row: str(paths[row]), classes=[c.name for c in classes]
    )


class Images:
    """Images as an array: [rows, channels, height, width], float32 in 0..1, until `fit` says otherwise."""

    def __init__(self, paths: list[Path]):
        self.paths = paths
        self.dtype = np.dtype(np.float32)
        self.channels_last = False
        self._cache: dict[int, np.ndarray] = {}
        self._cached = 0
        first = _upright(_open(paths[0]))
        self.size = first.size  # width, height
        self.mode = "L" if first.mode in ("L", "1", "I;16") else "RGB"

    def __len__(self) -> int:
        return len(self.paths)

    @property
    def shape(self) -> tuple[int, ...]:
        (width, height), channels = self.size, 1 if self.mode == "L" else 3
        row = (height, width, channels) if self.channels_last else (channels, height, width)
        return (len(self.paths), *row)

    def fit(self, dims: list[int | str | None], dtype: np.dtype) -> str:
        """Give the images the form that a model wants; return what was done, in words."""
        if len(dims) != 4:
            return ""
        self.channels_last = dims[3] in (1, 3) and dims[1] not in (1, 3)
        channels, height, width = (dims[3], dims[1], dims[2]) if self.channels_last else dims[1:]
        if channels in (1, 3):
            self.mode = "L" if channels == 1 else "RGB"
        was = self.size
        self.size = tuple(
            new if isinstance(new, int) else old
            for new, old in zip((width, height), was, strict=True)
        )
        self.dtype = np.dtype(dtype)
        scale = "0 to 255" if self.dtype.kind in "iu" else "0 to 1"
        kind = "grey" if self.mode == "L" else "colour"
        return f"images: {self.size[0]}×{self.size[1]} pixels, {kind}, numbers from {scale}; others are resized"

    def __getitem__(self, rows) -> np.ndarray:
        if isinstance(rows, slice):
            rows = range(*rows.indices(len(self)))
        pixels = np.stack([self._pixels(int(row)) for row in rows])
        if not self.channels_last:
            pixels = pixels.transpose(0, 3, 1, 2)
        if self.dtype.kind in "iu":
            return pixels.astype(self.dtype)
        return (pixels.astype(np.float32) / 255).astype(self.dtype)

    def _pixels(self, row: int) -> np.ndarray:
        """[height, width, channels], bytes."""
        if row in self._cache:
            return self._cache[row]
        try:
            image = _upright(_open(self.paths[row])).convert(self.mode)
            if image.size != self.size:
                image = image.resize(self.size, 2)  # bilinear
        except (DataError, FileError):
            raise
        except Exception as error:
            raise DataError(f"{self.paths[row]} cannot be read as an image: {error}") from error
        pixels = np.atleast_3d(np.asarray(image, np.uint8))
        if self._cached + pixels.nbytes <= CACHE_BYTES:
            self._cache[row] = pixels
            self._cached += pixels.nbytes
        return pixels


def _upright(image):
    """The picture as a viewer shows it: cameras write how they were held beside the pixels (EXIF)."""
    from PIL import ImageOps

    return ImageOps.exif_transpose(image)


def _open(path: Path):
    """The picture, not yet decoded; one that would not fit is refused by what its header says."""
    try:
        from PIL import Image
    except ImportError:
        raise DataError(
            f"{path}: reading images needs Pillow: pip install onnxgrad[images]"
        ) from None
    content = io.BytesIO(read_bytes(path, "a picture"))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)  # the limit is ours
            image = Image.open(content)
    except Exception as error:  # Pillow's readers raise what they like: SyntaxError, struct.error
        raise DataError(f"{path} cannot be read as an image: {error}") from error
    width, height = image.size
    limits.check("pixels", width * height, f"{path} has {width:,} × {height:,} pixels")
    return image
