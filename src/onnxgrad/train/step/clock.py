"""Where the time of training goes, by part."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import Any


class _Part:
    """Adds the time of one block. Several of them are in every step: a class costs less than a generator."""

    __slots__ = ("began", "name", "seconds")

    def __init__(self, seconds: dict[str, float], name: str):
        self.seconds, self.name = seconds, name

    def __enter__(self) -> None:
        self.began = time.perf_counter()

    def __exit__(self, *_: object) -> None:
        taken = time.perf_counter() - self.began
        self.seconds[self.name] = self.seconds.get(self.name, 0.0) + taken


class Clock:
    """Adds up seconds by name: `with clock("optimizer"): ...`."""

    def __init__(self):
        self.seconds: dict[str, float] = {}

    def __call__(self, part: str) -> _Part:
        return _Part(self.seconds, part)

    def each(self, part: str, items: Iterable[Any]) -> Iterator[Any]:
        """Yield the items; the time that each takes to come counts."""
        waiting = iter(items)
        while True:
            with self(part):
                try:
                    item = next(waiting)
                except StopIteration:
                    return
            yield item
