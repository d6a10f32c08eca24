"""Adapters, parameters to merge and old checkpoints; the first two bytes say which file is changed. For atheris."""

from __future__ import annotations

import random
import sys
from pathlib import Path

import atheris

sys.path.insert(0, str(Path(__file__).parent))

import engine

with atheris.instrument_imports(include=["onnxgrad"]):
    import adapters

    GOOD = adapters.starts()
    for form, good in GOOD:
        adapters.taken(form, good)

STARTS = [
    bytes([kind, place]) + files[name]
    for kind, (_, files) in enumerate(GOOD)
    for place, name in enumerate(sorted(files))
]


def file_of(head: bytes) -> tuple[str, dict[str, bytes], str]:
    """Return the kind, its good files, and the name of the one that is changed."""
    kind, files = GOOD[head[0] % len(GOOD)]
    return kind, files, sorted(files)[head[1] % len(files)]


def change(head: bytes, content: bytes, rng: random.Random) -> bytes:
    """Change words of JSON or bytes; where the content is no such file any more, those of the good one."""
    _, files, name = file_of(head)
    try:
        return adapters.changed({name: content}, rng)[name]
    except (ValueError, RecursionError):
        return adapters.changed({name: files[name]}, rng)[name]


def test_one_input(data: bytes) -> None:
    if len(data) >= 2:
        kind, files, name = file_of(data)
        adapters.taken(kind, {**files, name: data[2:]})


if __name__ == "__main__":
    engine.fuzz(test_one_input, STARTS, 2, change)
