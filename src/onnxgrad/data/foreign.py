"""Data of other libraries, known by what they can do and not by their classes: `datasets.Dataset`, tensors.

Nothing is imported: a dataset has columns and gives rows in NumPy's form, a tensor can be detached.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol, runtime_checkable

from onnxgrad.errors import DataError

TARGET_NAMES = ("target", "label", "labels", "y", "class")


@runtime_checkable
class ColumnTable(Protocol):
    """What `datasets.Dataset` offers: named columns, and rows as NumPy arrays."""

    column_names: list[str]

    def with_format(self, kind: str, columns: list[str]) -> Any:
        """Return the table, giving out rows in another form."""

    def __len__(self) -> int: ...

    def __getitem__(self, rows: Any) -> Any: ...


def array_of(value: Any) -> Any:
    """A tensor as what NumPy takes; anything else as it is."""
    if hasattr(value, "detach") and hasattr(value, "cpu"):  # PyTorch: it may hold gradients
        return value.detach().cpu().numpy()
    return value


def columns_of(
    given: Iterable[str], inputs: tuple[str, ...], targets: tuple[str, ...]
) -> dict[str, str]:
    """Which column each input and target is: by its name, else the only one that is left.

    Raises DataError where that does not say which.
    """
    given = list(given)
    found = {name: name for name in (*inputs, *targets) if name in given}
    missing = [name for name in targets if name not in found]
    if len(missing) == 1:
        usual = [name for name in TARGET_NAMES if name in given and name not in found]
        left = [name for name in given if name not in found]
        choice = usual or (left if len(left) == 1 else [])
        if choice:
            found[missing[0]] = choice[0]
    missing = [name for name in inputs if name not in found]
    left = [name for name in given if name not in found.values()]
    if len(missing) == 1 and len(left) == 1:
        found[missing[0]] = left[0]
    for name in (*inputs, *targets):
        if name not in found:
            kind = "input" if name in inputs else "target"
            raise DataError(
                f"no column of the dataset is the {kind} {name!r}: it has {', '.join(map(repr, given))}. "
                "Rename one with its rename_column"
            )
    return found
