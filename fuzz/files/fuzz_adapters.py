"""Adapters, parameters to merge and old checkpoints; the first two bytes say which file is changed. For atheris."""

from __future__ import annotations

import sys
from pathlib import Path

import atheris

sys.path.insert(0, str(Path(__file__).parent))

with atheris.instrument_imports(include=["onnxgrad", "flatbuffers"]):
    import adapters

GOOD = adapters.starts()


def test_one_input(data: bytes) -> None:
    if len(data) > 2:
        kind, files = GOOD[data[0] % len(GOOD)]
        names = sorted(files)
        adapters.taken(kind, {**files, names[data[1] % len(names)]: data[2:]})


if __name__ == "__main__":
    atheris.Setup(sys.argv, test_one_input)
    atheris.Fuzz()
