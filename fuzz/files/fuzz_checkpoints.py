"""Checkpoints with one file changed, hashes made right for every second one. For atheris."""

from __future__ import annotations

import sys
from pathlib import Path

import atheris

sys.path.insert(0, str(Path(__file__).parent))

with atheris.instrument_imports(include=["onnxgrad"]):
    import targets

GOOD = targets.checkpoint_files()
NAMES = sorted(GOOD)


def test_one_input(data: bytes) -> None:
    if data:
        files = {**GOOD, NAMES[data[0] % len(NAMES)]: data[1:]}
        targets.checkpoint(targets.rehashed(files) if data[0] & 128 else files)


if __name__ == "__main__":
    atheris.Setup(sys.argv, test_one_input)
    atheris.Fuzz()
