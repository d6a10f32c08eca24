"""Datasets in every format; the first byte of an input says which. For atheris."""

from __future__ import annotations

import sys
from pathlib import Path

import atheris

sys.path.insert(0, str(Path(__file__).parent))

import engine
import seeds

ENDINGS = ("npz", "packed.npz", "npy", "csv", "jsonl", "parquet", "png")
GOOD = {**seeds.datasets(Path()), "png": seeds.picture()}
STARTS = [bytes([ENDINGS.index(ending)]) + GOOD[ending] for ending in GOOD]

with atheris.instrument_imports(include=["onnxgrad"]):
    import targets

    for ending, content in GOOD.items():  # what is imported where it is used
        targets.dataset(content, ending)


def test_one_input(data: bytes) -> None:
    if data:
        targets.dataset(data[1:], ENDINGS[data[0] % len(ENDINGS)])


if __name__ == "__main__":
    engine.fuzz(test_one_input, STARTS, head=1)
