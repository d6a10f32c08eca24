"""How much a file may ask for. A file from a stranger should cost what it is worth, not what it claims.

The numbers are far above what real models and datasets need. `onnxgrad COMMAND --limit nodes=2000000`, or the
environment variable ONNXGRAD_LIMITS="nodes=2000000,columns=1000000", raises one; `limits.override` does in Python.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping

from onnxgrad.errors import LimitError

VARIABLE = "ONNXGRAD_LIMITS"

# name -> (default, what it bounds)
LIMITS: dict[str, tuple[int, str]] = {
    "nodes": (250_000, "nodes of a model, those of functions counted at every call, one of several outputs for each"),
    "depth": (100, "functions that call functions, and graphs inside graphs"),
    "name": (65_536, "bytes of one name in a model"),
    "constant": (1 << 27, "elements of a tensor that a model computes from constants alone"),
    "tensor": (1 << 34, "elements of any tensor whose shape the model fixes"),
    "trips": (1 << 24, "trips of a Loop that the model writes as a constant"),
    "columns": (100_000, "columns of a CSV or Parquet file, keys of a JSON line, arrays of an .npz file"),
    "unpacked": (200, "bytes of memory that one byte of a dataset may become, from 256 MiB on"),
    "pixels": (100_000_000, "pixels of one picture"),
    "samples": (100_000_000, "samples of one sound"),
}  # fmt: skip

_raised: dict[str, int] = {}


def limit(name: str) -> int:
    """The bound in force: the override, the environment's, or the default."""
    if name in _raised:
        return _raised[name]
    found = parse(os.environ[VARIABLE].split(",")) if os.environ.get(VARIABLE) else {}
    return found.get(name, LIMITS[name][0])


def parse(texts: list[str]) -> dict[str, int]:
    """`["nodes=1000"]` as a dict; raises LimitError for anything else."""
    found = {}
    for text in filter(None, (t.strip() for t in texts)):
        name, _, number = text.partition("=")
        if name not in LIMITS or not number.isdecimal() or int(number) < 1:
            raise LimitError(
                f"{text!r} is not a limit, expected NAME=NUMBER with one of the names {', '.join(LIMITS)}"
            )
        found[name] = int(number)
    return found


@contextlib.contextmanager
def override(**raised: int) -> Iterator[None]:
    """Other limits inside the block, for this process and the ones that it starts."""
    parse([f"{name}={number}" for name, number in raised.items()])
    before, environment = dict(_raised), os.environ.get(VARIABLE)
    _raised.update(raised)
    os.environ[VARIABLE] = as_text({**parse((environment or "").split(",")), **_raised})
    try:
        yield
    finally:
        _raised.clear()
        _raised.update(before)
        os.environ.pop(VARIABLE)
        if environment is not None:
            os.environ[VARIABLE] = environment


def as_text(found: Mapping[str, int]) -> str:
    return ",".join(f"{name}={number}" for name, number in found.items())


def check(name: str, number: int, who: str) -> None:
    """Raise LimitError where `who` has more than the limit allows; the message says how to raise it."""
    most = limit(name)
    if number > most:
        raise LimitError(
            f"{who}, and the limit is {most:,} ({LIMITS[name][1]}). "
            f"If you trust the file, raise it: --limit {name}={number}"
        )
