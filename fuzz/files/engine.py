"""What the harnesses for atheris share: good inputs to start from, and changes that keep to the form of a file.

An input is a head, whose bytes say which file it is, and the content of that file.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Sequence

import atheris
import mutate

MOST_BYTES = 1 << 16


def fuzz(use: Callable[[bytes], object], starts: Sequence[bytes], head: int = 0,
         change: Callable[[bytes, bytes, random.Random], bytes] | None = None) -> None:  # fmt: skip
    """Run libFuzzer, with its options from the command line.

    `change(head, content, rng)` returns another content; by default bytes are changed, by us or by libFuzzer.
    """

    def mutator(data: bytes, most: int, seed: int) -> bytes:
        rng = random.Random(seed)
        if len(data) <= head or rng.random() < 0.02:  # libFuzzer begins with nothing
            data = rng.choice(starts)
        first, content = data[:head], data[head:]
        if change is not None and rng.random() < 0.7:
            content = change(first, content, rng)
        elif rng.random() < 0.5:
            content = mutate.mutate_bytes(content, rng)
        else:
            content = atheris.Mutate(content, max(1, most - head))
        return (first + content)[:most]

    options = [sys.argv[0], f"-max_len={MOST_BYTES}", "-len_control=0", *sys.argv[1:]]
    atheris.Setup(options, use, custom_mutator=mutator)
    atheris.Fuzz()
