"""Reading and writing flatbuffers tables by field number, without generated code.

A table is a set of numbered fields; a schema only gives the numbers names. Fields that are absent have their default.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import flatbuffers
import numpy as np
from flatbuffers import encode, number_types, packer
from flatbuffers.table import Table


class Reader:
    """One table of a buffer."""

    def __init__(self, buffer: bytes, position: int):
        self._table = Table(buffer, position)

    @classmethod
    def root(cls, buffer: bytes) -> Reader:
        return cls(buffer, encode.Get(packer.uoffset, buffer, 0))

    def _place(self, field: int) -> int:
        """Return where a field lies; 0 where it is absent."""
        offset = self._table.Offset(4 + 2 * field)
        return self._table.Pos + offset if offset else 0

    def number(self, field: int, flags: Any, default: Any = 0) -> Any:
        place = self._place(field)
        return self._table.Get(flags, place) if place else default

    def text(self, field: int) -> str:
        place = self._place(field)
        return self._table.String(place).decode() if place else ""

    def table(self, field: int) -> Reader | None:
        place = self._place(field)
        return Reader(self._table.Bytes, self._table.Indirect(place)) if place else None

    def tables(self, field: int) -> list[Reader]:
        """Return the tables of a vector."""
        table, place = self._table, self._place(field)
        if not place:
            return []
        offset = place - table.Pos
        start = table.Vector(offset)
        positions = (table.Indirect(start + 4 * i) for i in range(table.VectorLen(offset)))
        return [Reader(table.Bytes, position) for position in positions]

    def array(self, field: int, flags: Any) -> np.ndarray | None:
        """Return a vector of numbers, a view of the buffer."""
        place = self._place(field)
        return self._table.GetVectorAsNumpy(flags, place - self._table.Pos) if place else None


class Writer:
    """A buffer under construction: what a table refers to is written before the table."""

    def __init__(self) -> None:
        self.builder = flatbuffers.Builder(1024)

    def text(self, value: str) -> int:
        return self.builder.CreateString(value)

    def array(self, values: np.ndarray) -> int:
        return self.builder.CreateNumpyVector(np.ascontiguousarray(values))

    def aligned(self, raw: bytes, alignment: int) -> int:
        """Write bytes that begin at a multiple of `alignment`."""
        builder = self.builder
        builder.StartVector(1, len(raw), alignment)
        builder.head = builder.Head() - len(raw)
        builder.Bytes[builder.Head() : builder.Head() + len(raw)] = raw
        return builder.EndVector()

    def tables(self, offsets: Iterable[int]) -> int:
        offsets = list(offsets)
        self.builder.StartVector(4, len(offsets), 4)
        for offset in reversed(offsets):
            self.builder.PrependUOffsetTRelative(offset)
        return self.builder.EndVector()

    def table(self, *fields: tuple[int, Callable[[int], None]]) -> int:
        """Write a table of (field number, what writes it)."""
        self.builder.StartObject(1 + max((number for number, _ in fields), default=0))
        for number, write in fields:
            write(number)
        return self.builder.EndObject()

    def refer(self, offset: int) -> Callable[[int], None]:
        return lambda field: self.builder.PrependUOffsetTRelativeSlot(field, offset, 0)

    def int32(self, value: int) -> Callable[[int], None]:
        return lambda field: self.builder.PrependInt32Slot(field, value, 0)

    def int64(self, value: int, default: int = 0) -> Callable[[int], None]:
        return lambda field: self.builder.PrependInt64Slot(field, value, default)

    def float32(self, value: float) -> Callable[[int], None]:
        return lambda field: self.builder.PrependFloat32Slot(field, value, 0.0)

    def flag(self, value: bool) -> Callable[[int], None]:
        return lambda field: self.builder.PrependBoolSlot(field, value, False)

    def finish(self, root: int, identifier: bytes) -> bytes:
        self.builder.Finish(root, file_identifier=identifier)
        return bytes(self.builder.Output())


INT32, INT64 = number_types.Int32Flags, number_types.Int64Flags
FLOAT32, FLAG, BYTE = number_types.Float32Flags, number_types.BoolFlags, number_types.Uint8Flags
