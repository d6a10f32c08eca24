"""Reading and writing flatbuffers tables by field number, without generated code.

A table is a set of numbered fields; a schema only gives the numbers names. Fields that are absent have their default.
Tables of one file may refer to the same bytes. A reader that copies what it finds could then be made to copy a few
bytes many times: it hands out no more bytes than the file has.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import flatbuffers
import numpy as np
from flatbuffers import encode, number_types, packer
from flatbuffers.table import Table


class Reader:
    """One table of a buffer."""

    def __init__(self, buffer: bytes, position: int, given: Counter[str]):
        self._table, self._given = Table(buffer, position), given

    @classmethod
    def root(cls, buffer: bytes) -> Reader:
        return cls(buffer, encode.Get(packer.uoffset, buffer, 0), Counter())

    def _give(self, size: int) -> None:
        """Count bytes that are handed out. Raises ValueError where there are more than the file has."""
        self._given["bytes"] += size
        if self._given["bytes"] > len(self._table.Bytes):
            raise ValueError("its tables share bytes with each other")

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
        return self._other(self._table.Indirect(place)) if place else None

    def _other(self, position: int) -> Reader:
        return Reader(self._table.Bytes, position, self._given)

    def tables(self, field: int) -> list[Reader]:
        """Return the tables of a vector."""
        table, place = self._table, self._place(field)
        if not place:
            return []
        offset = place - table.Pos
        start, count = table.Vector(offset), table.VectorLen(offset)
        self._give(4 * count)
        return [self._other(table.Indirect(start + 4 * i)) for i in range(count)]

    def array(self, field: int, flags: Any) -> np.ndarray | None:
        """Return a vector of numbers, a view of the buffer."""
        place = self._place(field)
        if not place:
            return None
        found = self._table.GetVectorAsNumpy(flags, place - self._table.Pos)
        self._give(found.nbytes)
        return found


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
