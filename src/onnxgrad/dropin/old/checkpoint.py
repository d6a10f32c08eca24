"""The checkpoint file of onnxruntime-training: one flatbuffers table, with a data file beside it when it is large.

Checkpoint       0 version · 1 ModuleState · 2 [OptimizerGroup] · 3 PropertyBag
ModuleState      0 [Tensor] trained · 1 [Tensor] frozen · 2 is nominal · 3 has external data
OptimizerGroup   0 name · 1 step · 2 initial learning rate · 3 [ParameterState]
ParameterState   0 parameter · 1 [Tensor] moments
PropertyBag      0 [name, int64] · 1 [name, float] · 2 [name, string]
Tensor           0 name · 2 dims · 3 type (as in ONNX) · 4 bytes · 6 offset in the data file
"""

from __future__ import annotations

import os
import struct
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import onnx

from onnxgrad.errors import DropInError, FileError, MissingFileError
from onnxgrad.files.arrays import map_bytes
from onnxgrad.files.flat import BYTE, FLAG, FLOAT32, INT32, INT64, Reader, Writer
from onnxgrad.files.paths import read_bytes
from onnxgrad.files.write import write_bytes

IDENTIFIER = b"ODTC"
VERSION = 2  # of 1.19.2; version 1 differs in what it lacks
EXTERNAL_ABOVE = 1_800_000_000  # bytes of parameters: a flatbuffer ends at 2 GB
GROUP = "group0"  # the only group that the old package has

Property = int | float | str


@dataclass
class OptimizerGroup:
    """The progress of an optimizer; `moments` holds momentum0 and momentum1 of each parameter."""

    step: int = 0
    initial_learning_rate: float = 1e-3
    moments: dict[str, dict[str, np.ndarray]] = field(default_factory=dict)


@dataclass
class Checkpoint:
    """What a checkpoint file holds. A nominal one has names and no numbers."""

    trainable: dict[str, np.ndarray]
    frozen: dict[str, np.ndarray]
    nominal: bool = False
    optimizer: OptimizerGroup | None = None
    properties: dict[str, Property] = field(default_factory=dict)


# ---- reading


def read(path: str | os.PathLike[str]) -> Checkpoint:
    """Return the checkpoint at `path`; raises DropInError where there is none."""
    path = Path(os.fspath(path))
    try:
        buffer = read_bytes(path, "a checkpoint file")
    except MissingFileError as error:
        raise DropInError(f"checkpoint {path} cannot be read: No such file or directory") from error
    except (OSError, FileError) as error:
        raise DropInError(str(error)) from error
    if buffer[4:8] != IDENTIFIER:
        begins = buffer[:8]
        raise DropInError(
            f"{path} is not a checkpoint of onnxruntime training: it begins with {begins!r}, expected "
            f"{IDENTIFIER!r} from its fifth byte on; give the file `checkpoint` that "
            "generate_artifacts wrote"
        )
    try:
        return _Reading(path, buffer).checkpoint()
    except (struct.error, ValueError, TypeError, LookupError, OverflowError) as error:
        raise DropInError(f"checkpoint {path} is damaged: {error}") from error


class _Reading:
    def __init__(self, path: Path, buffer: bytes):
        self.path, self.root = path, Reader.root(buffer)
        self.data: np.ndarray | None = None  # the bytes of the data file, mapped
        self.taken = 0  # bytes of it

    def checkpoint(self) -> Checkpoint:
        version = self.root.number(0, INT32)
        if not 1 <= version <= VERSION:
            raise DropInError(
                f"checkpoint {self.path} has version {version}, expected at most {VERSION}"
            )
        module = self.root.table(1)
        if module is None:
            raise DropInError(f"checkpoint {self.path} holds no parameters")
        nominal = bool(module.number(2, FLAG))
        if module.number(3, FLAG):
            self.data = _map(data_path(self.path))
        trainable, frozen = (self._tensors(module.tables(i), nominal) for i in (0, 1))
        return Checkpoint(trainable, frozen, nominal, self._optimizer(), self._properties())

    def _tensors(self, tables: list[Reader], nominal: bool = False) -> dict[str, np.ndarray]:
        return {t.text(0): self._tensor(t, nominal) for t in tables}

    def _tensor(self, table: Reader, nominal: bool) -> np.ndarray:
        name, dims = table.text(0), table.array(2, INT64)
        shape = () if dims is None else tuple(int(d) for d in dims)
        dtype = np.dtype(onnx.helper.tensor_dtype_to_np_dtype(table.number(3, INT32)))
        if nominal:
            return np.empty(0, dtype)
        size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        offset = table.number(6, INT64, -1)
        outside = offset >= 0 and self.data is not None
        raw = self._outside(offset, size) if outside else table.array(4, BYTE)
        found = 0 if raw is None else raw.size
        if found != size:
            raise DropInError(
                f"checkpoint {self.path} is damaged: tensor {name!r} of shape {list(shape)} has "
                f"{found} bytes, expected {size}"
            )
        flat = np.zeros(0, np.uint8) if raw is None else raw
        return np.frombuffer(flat.tobytes(), dtype.newbyteorder("<")).astype(dtype).reshape(shape)

    def _outside(self, offset: int, size: int) -> np.ndarray:
        """Bytes of the data file; all tensors together take no more than it has."""
        found = self.data[offset : offset + size]
        self.taken += found.size
        if self.taken > self.data.size:
            raise ValueError("its tensors share bytes with each other")
        return found

    def _optimizer(self) -> OptimizerGroup | None:
        groups = self.root.tables(2)
        if not groups:
            return None
        group = groups[0]
        moments = {s.text(0): self._tensors(s.tables(1)) for s in group.tables(3)}
        return OptimizerGroup(group.number(1, INT64), group.number(2, FLOAT32), moments)

    def _properties(self) -> dict[str, Property]:
        bag = self.root.table(3)
        if bag is None:
            return {}
        found: dict[str, Property] = {p.text(0): p.number(1, INT64) for p in bag.tables(0)}
        found.update((p.text(0), p.number(1, FLOAT32, 0.0)) for p in bag.tables(1))
        found.update((p.text(0), p.text(1)) for p in bag.tables(2))
        return found


def data_path(path: Path) -> Path:
    """Return the name of the data file of a large checkpoint."""
    return path.with_name(path.name + ".data")


def _map(path: Path) -> np.ndarray:
    try:
        return map_bytes(path)
    except (OSError, ValueError) as error:
        raise DropInError(
            f"{path} cannot be read: {error}; a large checkpoint has its numbers in this file, "
            "which must lie beside it"
        ) from error


# ---- writing


def write(checkpoint: Checkpoint, path: str | os.PathLike[str]) -> None:
    """Write a checkpoint that onnxruntime-training 1.19.2 can read too."""
    path = Path(os.fspath(path))
    writing = _Writing(checkpoint)
    buffer = writing.buffer()
    try:
        if writing.data:
            write_bytes(data_path(path), b"".join(writing.data))
        write_bytes(path, buffer)
    except OSError as error:
        raise DropInError(
            f"checkpoint {path} cannot be written: {error.strerror or error}"
        ) from error


class _Writing:
    def __init__(self, checkpoint: Checkpoint):
        self.checkpoint, self.to = checkpoint, Writer()
        arrays = (*checkpoint.trainable.values(), *checkpoint.frozen.values())
        self.external = sum(a.nbytes for a in arrays) > EXTERNAL_ABOVE
        self.data: list[bytes] = []
        self.offset = 0

    def buffer(self) -> bytes:
        to, checkpoint = self.to, self.checkpoint
        fields = [(0, to.int32(VERSION)), (1, to.refer(self._module()))]
        if checkpoint.optimizer is not None:
            fields.append((2, to.refer(to.tables([self._group(checkpoint.optimizer)]))))
        if checkpoint.properties:
            fields.append((3, to.refer(self._properties())))
        return to.finish(to.table(*fields), IDENTIFIER)

    def _module(self) -> int:
        to, nominal = self.to, self.checkpoint.nominal
        sides = (self.checkpoint.trainable, self.checkpoint.frozen)
        vectors = [to.tables([self._tensor(n, a, nominal) for n, a in s.items()]) for s in sides]
        return to.table(
            (0, to.refer(vectors[0])), (1, to.refer(vectors[1])),
            (2, to.flag(nominal)), (3, to.flag(self.external)),
        )  # fmt: skip

    def _tensor(self, name: str, array: np.ndarray, nominal: bool = False) -> int:
        to = self.to
        array = np.asarray(array)
        dims = np.array([] if nominal else array.shape, np.int64)
        kind = onnx.helper.np_dtype_to_tensor_dtype(array.dtype)
        little = array.astype(array.dtype.newbyteorder("<"), copy=False)
        raw = b"" if nominal else little.tobytes()
        fields = [(0, to.refer(to.text(name))), (2, to.refer(to.array(dims))), (3, to.int32(kind))]
        if self.external and not nominal:
            fields.append((6, to.int64(self.offset, -1)))
            self.data.append(raw)
            self.offset += len(raw)
        else:
            fields.append((4, to.refer(to.array(np.frombuffer(raw, np.uint8)))))
        return to.table(*fields)

    def _group(self, group: OptimizerGroup) -> int:
        to = self.to
        external, self.external = self.external, False  # moments stay in the file itself
        states = []
        for name, moments in group.moments.items():
            tensors = to.tables([self._tensor(n, a) for n, a in moments.items()])
            states.append(to.table((0, to.refer(to.text(name))), (1, to.refer(tensors))))
        self.external = external
        title, states = to.text(GROUP), to.tables(states)
        return to.table(
            (0, to.refer(title)), (1, to.int64(group.step)),
            (2, to.float32(group.initial_learning_rate)), (3, to.refer(states)),
        )  # fmt: skip

    def _properties(self) -> int:
        to = self.to
        kinds: tuple[list[int], list[int], list[int]] = ([], [], [])
        for name, value in sorted(self.checkpoint.properties.items()):
            title = (0, to.refer(to.text(name)))
            if isinstance(value, str):
                kinds[2].append(to.table(title, (1, to.refer(to.text(value)))))
            elif isinstance(value, float):
                kinds[1].append(to.table(title, (1, to.float32(value))))
            else:
                kinds[0].append(to.table(title, (1, to.int64(value))))
        vectors = [to.tables(k) for k in kinds]
        return to.table(*((i, to.refer(v)) for i, v in enumerate(vectors)))
