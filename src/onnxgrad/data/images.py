"""A column of pictures: decoded when they are needed, in the form that a model takes."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from onnxgrad.data import pixels
from onnxgrad.data.augment import Augment
from onnxgrad.errors import DataError
from onnxgrad.files import limits

CACHE_BYTES = 512 << 20  # decoded pictures that are kept
BYTE = 1 / 255


@dataclass(frozen=True)
class PictureForm:
    """How a picture becomes numbers: resized, cut in the middle, (pixel · rescale - mean) / std.

    resize: (256,) is the shorter side, (224, 224) height and width. crop: height and width. Empty or None
    is not said, and follows from the model.
    """

    resize: tuple[int, ...] = ()
    crop: tuple[int, ...] = ()
    resample: str = "bilinear"
    rescale: float | None = None
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()
    channels_last: bool | None = None
    channels: int | None = None

    def checked(self) -> PictureForm:
        """Return the form. Raises ValueError for what no picture has: models and files of strangers say it."""
        for name, counts in (("resize", (0, 1, 2)), ("crop", (0, 2))):
            sides = getattr(self, name)
            if len(sides) not in counts or any(type(s) is not int or s < 1 for s in sides):
                raise ValueError(f"{name} is {list(sides)!r:.60}")
        numbers = (*self.mean, *self.std, 0.0 if self.rescale is None else self.rescale)
        if not all(math.isfinite(number) for number in numbers) or any(s <= 0 for s in self.std):
            raise ValueError(f"mean, std or rescale is {numbers!r:.60}")
        if self.resample not in pixels.RESAMPLES:
            raise ValueError(f"resample is {self.resample!r:.60}")
        if self.channels is not None and self.channels not in pixels.MODES:
            raise ValueError(f"channels is {self.channels!r:.60}")
        return self

    def fitted(self, who: str, dims: list, dtype: np.dtype, first: Path) -> PictureForm:
        """All that is not said, by a model's input of these dims and by the first picture."""
        if len(dims) != 4:
            return self
        size, channels = pixels.look(first)
        last = self.channels_last
        if last is None:
            last = dims[3] in (1, 3) and dims[1] not in (1, 3)
        wanted = dims[3] if last else dims[1]
        channels = wanted if wanted in pixels.MODES else self.channels or channels
        height, width = (dims[1], dims[2]) if last else (dims[2], dims[3])
        form = self._sized(who, (height, width), size)
        rescale = self.rescale
        if rescale is None:
            rescale = 1.0 if dtype.kind in "iu" else BYTE
        if dtype.kind in "iu" and (self.mean or self.std or rescale != 1):
            raise DataError(f"{who} takes whole numbers: no mean, deviation or rescaling fits it")
        for flag, numbers in (("--mean", self.mean), ("--std", self.std)):
            if len(numbers) not in (0, 1, channels):
                raise DataError(
                    f"{flag} has {len(numbers)} numbers, and {who} takes pictures of {channels} channels"
                )
        return replace(form, rescale=rescale, channels_last=last, channels=channels)

    def _sized(self, who: str, wanted: tuple, first: tuple[int, int]) -> PictureForm:
        """Resize and crop such that every picture comes out at the size that the model wants."""
        known = all(isinstance(side, int) for side in wanted)
        resize, crop = self.resize, self.crop
        if not crop and len(resize) == 1:
            crop = tuple(wanted) if known else (resize[0], resize[0])
        if not crop and not resize:
            resize = tuple(
                w if isinstance(w, int) else f for w, f in zip(wanted, first, strict=True)
            )
        made = crop or resize
        if any(isinstance(w, int) and w != m for w, m in zip(wanted, made, strict=True)):
            sides = " × ".join("?" if not isinstance(w, int) else str(w) for w in wanted)
            raise DataError(
                f"{who} takes pictures of {sides}, and {'--crop' if crop else '--resize'} makes "
                f"{made[0]} × {made[1]} (from a flag, the model's metadata or preprocessor_config.json); "
                "a flag with the right size wins"
            )
        limits.check("pixels", made[0] * made[1], f"{who} takes {made[0]:,} × {made[1]:,} pixels")
        return replace(self, resize=resize, crop=crop)

    @property
    def size(self) -> tuple[int, ...]:
        """Height and width of what comes out."""
        return self.crop or self.resize

    def numbers(self, stacked: np.ndarray, dtype: np.dtype) -> np.ndarray:
        """[rows, height, width, channels] of bytes as the model's numbers."""
        if dtype.kind in "iu":
            made = stacked.astype(dtype)
        else:
            made = stacked.astype(np.float32)
            made = made / 255 if self.rescale == BYTE else made * np.float32(self.rescale)
            if self.mean:
                made -= np.array(self.mean, np.float32)
            if self.std:
                made /= np.array(self.std, np.float32)
        made = made if self.channels_last else made.transpose(0, 3, 1, 2)
        return made.astype(dtype, copy=False)

    def __str__(self) -> str:
        kind = {1: "grey", 3: "colour"}.get(self.channels, f"{self.channels} channels")
        steps = []
        if len(self.resize) == 1:
            steps.append(f"shorter side {self.resize[0]}")
        elif self.crop and self.resize:
            steps.append(f"resized to {self.resize[1]}×{self.resize[0]}")
        steps.append(f"{self.size[1]}×{self.size[0]} pixels{' from the middle' * bool(self.crop)}")
        steps.append(kind)
        scale = {1.0: "0 to 255", BYTE: "0 to 1"}.get(self.rescale, f"bytes × {self.rescale:g}")
        steps.append(f"numbers from {scale}" if self.rescale in (1.0, BYTE) else scale)
        if self.mean:
            steps.append(f"minus the mean {', '.join(f'{m:g}' for m in self.mean)}")
        if self.std:
            steps.append(f"divided by {', '.join(f'{s:g}' for s in self.std)}")
        return ", ".join(steps)


class Images:
    """Pictures as an array: [rows, channels, height, width], float32 in 0..1, until `fit` says otherwise."""

    def __init__(self, paths: list[Path]):
        self.paths = paths
        self.dtype = np.dtype(np.float32)
        self._cache: dict[int, np.ndarray] = {}
        self._cached = 0
        self.form = PictureForm().fitted("the model", [None] * 4, self.dtype, paths[0])

    def __len__(self) -> int:
        return len(self.paths)

    @property
    def shape(self) -> tuple[int, ...]:
        size, channels = self.form.size, self.form.channels
        row = (*size, channels) if self.form.channels_last else (channels, *size)
        return (len(self.paths), *row)

    def fit(self, who: str, dims: list[int | None], dtype: np.dtype, form: PictureForm) -> None:
        """Give the pictures the form that an input of a model wants; `who` names it in messages."""
        if len(dims) == 4:
            self.dtype = np.dtype(dtype)
            self.form = form.fitted(who, dims, self.dtype, self.paths[0])
            self._cache, self._cached = {}, 0

    def __getitem__(self, rows) -> np.ndarray:
        if isinstance(rows, slice):
            rows = range(*rows.indices(len(self)))
        made = [pixels.centre(self._decoded(int(row)), self.form.crop) for row in rows]
        return self.form.numbers(np.stack(made), self.dtype)

    def varied(self, rows: np.ndarray, augment: Augment, seed: list[int]) -> np.ndarray:
        """Rows, each changed at random; what is drawn depends on `seed` and the row alone."""
        made = [
            augment.picture(
                self._decoded(int(row)), self.form.size, np.random.default_rng([*seed, int(row)])
            )
            for row in rows
        ]
        return self.form.numbers(np.stack(made), self.dtype)

    def _decoded(self, row: int) -> np.ndarray:
        """[height, width, channels], bytes, resized and not yet cut."""
        if row in self._cache:
            return self._cache[row]
        form = self.form
        made = pixels.decode(self.paths[row], form.channels, form.resize, form.resample)
        if self._cached + made.nbytes <= CACHE_BYTES:
            self._cache[row] = made
            self._cached += made.nbytes
        return made
