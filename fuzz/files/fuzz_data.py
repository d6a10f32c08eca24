"""Datasets in every format; the first byte of an input says which. For atheris."""

from __future__ import annotations

import sys
from pathlib import Path

import atheris

sys.path.insert(0, str(Path(__file__).parent))

with atheris.instrument_imports(include=["onnxgrad", "numpy"]):
    import targets

ENDINGS = ("npz", "npy", "csv", "jsonl", "parquet", "png")


def test_one_input(data: bytes) -> None:
    if data:
        targets.dataset(data[1:], ENDINGS[data[0] % len(ENDINGS)])


if __name__ == "__main__":
    atheris.Setup(sys.argv, test_one_input)
    atheris.Fuzz()
