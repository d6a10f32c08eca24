"""Pictures changed at random while a model is trained: turned, cut, recoloured, mixed.

What is drawn follows from the seed, the epoch and the row alone: an interrupted run goes on to the same bits,
whoever reads the rows in whatever order.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import numpy as np

from onnxgrad.data import pixels
from onnxgrad.data.table import is_number
from onnxgrad.errors import ConfigError

# The strength of each where only its name is given, and the largest that means something.
STRENGTHS = {
    "flip": (0.5, 1.0), "crop": (0.3, 0.99), "rotate": (15.0, 180.0), "colour": (0.2, 1.0),
    "mixup": (0.2, 100.0),
}  # fmt: skip
# How bright red, green and blue look (ITU-R BT.601).
LUMA = np.array([0.299, 0.587, 0.114], np.float32)


@dataclass(frozen=True)
class Augment:
    """How much pictures are changed; 0 leaves a change out.

    flip: the chance of left for right. crop: a part is cut out that has at least 1 - crop of the area.
    rotate: degrees, to either side. colour: brightness, contrast and saturation by a factor from
    1 - colour to 1 + colour each. mixup: two pictures of a batch and their labels are mixed by a share
    drawn from Beta(mixup, mixup).
    """

    flip: float = 0.0
    crop: float = 0.0
    rotate: float = 0.0
    colour: float = 0.0
    mixup: float = 0.0

    @classmethod
    def parse(cls, text: str) -> Augment:
        """What `--augment` says: names with commas, each with or without its strength.

        >>> Augment.parse("flip,rotate=30")
        Augment(flip=0.5, crop=0.0, rotate=30.0, colour=0.0, mixup=0.0)
        """
        found = {}
        for part in filter(None, (p.strip() for p in text.split(","))):
            name, given, strength = part.partition("=")
            name = {"color": "colour"}.get(name.strip(), name.strip())
            if name not in STRENGTHS:
                raise ConfigError(
                    f"--augment has {name!r}, expected some of {', '.join(STRENGTHS)}, such as flip,rotate=15"
                )
            default, most = STRENGTHS[name]
            number = float(strength) if given and is_number(strength) else default
            if (given and not is_number(strength)) or not 0 <= number <= most:
                raise ConfigError(
                    f"--augment {part}: the strength is {strength!r}, expected a number from 0 to {most:g}"
                )
            found[name] = number
        return cls(**found)

    def __bool__(self) -> bool:
        return any(dataclasses.astuple(self))

    def __str__(self) -> str:
        return ", ".join(f"{n} {v:g}" for n, v in dataclasses.asdict(self).items() if v)

    def picture(
        self, picture: np.ndarray, size: tuple[int, ...], rng: np.random.Generator
    ) -> np.ndarray:
        """One picture, bytes [height, width, channels], changed and brought to height and width `size`.

        Every number is drawn whether it is used or not, so that one setting does not change another's chance.
        """
        draws = rng.random(8)
        if self.crop:
            picture = pixels.cut(picture, self._box(picture.shape, size, draws[:4]), tuple(size))
        else:
            picture = pixels.centre(picture, size)
        if draws[4] < self.flip:
            picture = picture[:, ::-1]
        if self.rotate:
            picture = pixels.turned(picture, self.rotate * (2 * draws[5] - 1))
        if self.colour:
            picture = self._coloured(picture, rng.random(3))
        return picture

    def _box(self, shape: tuple[int, ...], size: tuple[int, ...], draws: np.ndarray) -> tuple:
        """Left, top, right, bottom: a random place and share of the area, nearly in the form of `size`."""
        height, width = shape[:2]
        area = height * width * (1 - self.crop * draws[0])
        ratio = size[1] / size[0] * np.exp((2 * draws[1] - 1) * np.log(4 / 3))
        w, h = min(width, np.sqrt(area * ratio)), min(height, np.sqrt(area / ratio))
        left, top = (width - w) * draws[2], (height - h) * draws[3]
        return float(left), float(top), float(left + w), float(top + h)

    def _coloured(self, picture: np.ndarray, draws: np.ndarray) -> np.ndarray:
        bright, contrast, saturated = 1 + self.colour * (2 * draws - 1).astype(np.float32)
        made = picture.astype(np.float32) * bright
        middle = made.mean(dtype=np.float64).astype(np.float32)
        made = middle + (made - middle) * contrast
        if picture.shape[2] == 3:
            grey = (made * LUMA).sum(2, keepdims=True)
            made = grey + (made - grey) * saturated
        return np.clip(np.rint(made), 0, 255).astype(np.uint8)

    def mixed(self, arrays: dict, names: list[str], seed: list[int]) -> dict:
        """A batch in which each of `names` is share·itself + (1 - share)·another row's, in pairs."""
        rng = np.random.default_rng([*seed, 1 << 31])
        share = float(rng.beta(self.mixup, self.mixup))
        rows = len(arrays[names[0]])
        others = rng.permutation(rows)
        made = dict(arrays)
        for name in names:
            array = arrays[name]
            made[name] = (share * array + (1 - share) * array[others]).astype(array.dtype)
        return made
