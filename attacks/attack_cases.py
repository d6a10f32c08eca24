"""The attacks: files that somebody might hand to onnxgrad, and what it must answer. Each is made anew, in a folder.

`case(says, ...)` names a function that writes the files into `box` and returns the command; the docstring is the row of
the table in README.md. Beside `box` lies `outside`, which nothing may read or change.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

USAGE, NOT_TRAINABLE = 2, 3


@dataclass(frozen=True)
class Case:
    """`says` is a part of the sentence that must come; `codes` are the exit codes that may."""

    name: str
    make: Callable[[Path], list[str]]
    says: str
    codes: tuple[int, ...]

    @property
    def what(self) -> str:
        return " ".join((self.make.__doc__ or "").split())


CASES: dict[str, Case] = {}


def case(says: str, codes: tuple[int, ...] = (USAGE,)):
    """Register an attack under the name of its function."""

    def register(make: Callable[[Path], list[str]]):
        CASES[make.__name__] = Case(make.__name__, make, says, codes)
        return make

    return register


README = """# Attacks

Files that somebody might hand to onnxgrad, each made anew by a function of this folder, and what onnxgrad must
answer: the exit code, a sentence with these words, at most 5 s of the processor and 1 GiB of memory, and no file in
or around the folder changed. `python attacks/run.py` runs them all in about a minute; `make test` does, too. This
page is written by `python attacks/run.py --readme`.

| attack | what it is | exit code | the sentence says |
|---|---|---|---|
"""


def readme() -> str:
    """The content of README.md."""
    rows = [
        f"| {c.name} | {c.what} | {' or '.join(map(str, c.codes))} | {c.says} |\n"
        for c in every_case()
    ]
    return README + "".join(rows)


def every_case() -> list[Case]:
    """All of them; the modules register theirs when they are loaded."""
    import adapter_files  # noqa: F401
    import attack_targets  # noqa: F401
    import costly_data  # noqa: F401
    import data_files  # noqa: F401
    import graphs  # noqa: F401
    import weights  # noqa: F401

    return list(CASES.values())
