"""Checkpoints with one file changed, hashes made right for every second one. For atheris."""

from __future__ import annotations

import random
import sys
from pathlib import Path

import atheris

sys.path.insert(0, str(Path(__file__).parent))

import engine
import mutate

with atheris.instrument_imports(include=["onnxgrad"]):
    import targets

    GOOD = targets.checkpoint_files()
    targets.checkpoint(GOOD)

NAMES = sorted(GOOD)
REHASHED = 128  # a bit of the head; the others number the file
STARTS = [bytes([n | bit]) + GOOD[name] for n, name in enumerate(NAMES) for bit in (0, REHASHED)]


def name_of(head: bytes) -> str:
    return NAMES[(head[0] % REHASHED) % len(NAMES)]


def change(head: bytes, content: bytes, rng: random.Random) -> bytes:
    """Change values of a JSON file, bytes of any other."""
    if not name_of(head).endswith(".json"):
        return mutate.mutate_bytes(content, rng)
    try:
        return mutate.mutate_json(content, rng)
    except (ValueError, RecursionError):
        return mutate.mutate_json(GOOD[name_of(head)], rng)


def test_one_input(data: bytes) -> None:
    if data:
        files = {**GOOD, name_of(data): data[1:]}
        targets.checkpoint(targets.rehashed(files) if data[0] & REHASHED else files)


if __name__ == "__main__":
    engine.fuzz(test_one_input, STARTS, 1, change)
