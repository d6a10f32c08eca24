"""The UCI handwritten digits: 1,797 images of 8 × 8 pixels, 0 to 16, with their labels.

Optical Recognition of Handwritten Digits (E. Alpaydin, C. Kaynak, 1998), UCI Machine Learning Repository,
licence CC BY 4.0. `digits.npz` is its test set, as scikit-learn ships it.
"""

from __future__ import annotations

from importlib import resources
from pathlib import Path
from typing import NamedTuple

import numpy as np


class Split(NamedTuple):
    train: Path
    validation: Path
    test: Path


def load() -> tuple[np.ndarray, np.ndarray]:
    """Images as float32 in 0..1, shape [1797, 1, 8, 8], and labels."""
    with (
        resources.files(__package__).joinpath("digits.npz").open("rb") as file,
        np.load(file) as data,
    ):
        return data["images"][:, None].astype(np.float32) / 16, data["labels"].astype(np.int64)


def write(folder: Path) -> Split:
    """Three files: 1,200 digits to train on, 247 to watch, 350 that training never sees."""
    images, labels = load()
    order = np.random.default_rng(0).permutation(len(labels))
    split = Split(folder / "train.npz", folder / "validation.npz", folder / "test.npz")
    for path, rows in zip(split, np.split(order, [1200, 1447]), strict=True):
        np.savez(path, x=images[rows], label=labels[rows])
    return split
