"""Where the time of training goes, by part."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any


class Clock:
    """Adds up seconds by name: `with clock("optimizer"): ...`."""

    def __init__(self):
        self.seconds: dict[str, float] = {}

    @contextmanager
    def __call__(self, part: str) -> Iterator[None]:
        began = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[part] = self.seconds.get(part, 0.0) + time.perf_counter() - began

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
