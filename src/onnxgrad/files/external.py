"""The weights that a model keeps in other files: which file, which bytes, and whether it may be read.

The rule is onnxruntime's. A name is relative and does not climb; links are followed as long as they end beside
the model or beside the file that the model's own name leads to. So a model in the cache of the Hugging Face hub,
where every name is a link into one folder, is read, and so are hard links.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import onnx
import onnx_ir as ir

from onnxgrad.errors import FileError, ModelError
from onnxgrad.files.paths import inside, open_file, printable
from onnxgrad.files.tensors import byte_size

KEYS = ("location", "offset", "length", "checksum", "basepath")


@dataclass(frozen=True)
class Place:
    """Where a tensor's bytes are, as the model says."""

    location: str
    offset: int
    length: int


def is_external(tensor: onnx.TensorProto) -> bool:
    return tensor.data_location == onnx.TensorProto.EXTERNAL


def place(tensor: onnx.TensorProto) -> Place:
    """Read the entries of an external tensor. Raises ModelError where they contradict each other."""
    who = f"tensor {printable(tensor.name)!r}"
    entries: dict[str, str] = {}
    for entry in tensor.external_data:
        if entry.key in entries:  # each reader would believe another one
            raise ModelError(f"{who} has the external-data entry {entry.key!r} twice")
        if entry.key in KEYS:
            entries[entry.key] = entry.value
    size = byte_size(tensor)
    numbers = {}
    for key, default in (("offset", 0), ("length", size)):
        text = entries.get(key, str(default))
        if not text.isdecimal() or not text.isascii() or len(text) > 19:
            raise ModelError(f"{who} has the {key} {text[:40]!r}, expected a number of bytes")
        numbers[key] = int(text)
    if numbers["length"] != size and numbers["length"] != 0:
        raise ModelError(
            f"{who} of shape {list(tensor.dims)} has {numbers['length']:,} bytes of external data, "
            f"expected {size:,}"
        )
    return Place(entries.get("location", ""), numbers["offset"], size)


class Folder:
    """Where a model's external files are looked for: beside the model, as it was named and as it really lies."""

    def __init__(self, model: Path | None):
        self.model = model
        self.folders = [Path.cwd()] if model is None else [model.parent, model.resolve().parent]

    def file(self, location: str) -> Path:
        """The real path of an external file. Raises FileError where it lies elsewhere."""
        try:
            return inside(location, *self.folders)
        except FileError as error:
            raise FileError(f"the external data {error}") from None

    def open(self, location: str) -> BinaryIO:
        """The external file, open."""
        return open_file(self.file(location), "a file of weights")


class FileTensor(ir.ExternalTensor):
    """An external tensor whose file is the one that `Folder` found, whatever the working folder becomes."""

    @classmethod
    def of(cls, tensor: ir.ExternalTensor, folder: Folder) -> FileTensor:
        made = cls(
            tensor.location, tensor.offset, tensor.length, tensor.dtype, shape=tensor.shape,
            name=tensor.name, doc_string=tensor.doc_string,
            metadata_props=dict(tensor.metadata_props),
        )  # fmt: skip
        made.folder = folder
        return made

    @property
    def path(self) -> str:
        # asked for at every reading, so that a link that was exchanged since is seen
        return os.fspath(self.folder.file(os.fspath(self.location)))


def check(
    tensors: Iterable[onnx.TensorProto], model: Path | None, name: str, *, strict: bool = True
) -> None:
    """Check the external data of a model. `strict`: every file must be there, and long enough.

    Raises ModelError that names everything that is missing or too short, all at once.
    """
    folder = Folder(model)
    wanted: dict[Path, int] = {}
    for tensor in tensors:
        if not is_external(tensor):
            continue
        try:
            where = place(tensor)
            path = folder.file(where.location)
        except (ModelError, FileError) as error:
            raise ModelError(f"{name}: {error}") from error
        wanted[path] = max(wanted.get(path, 0), where.offset + where.length)
    faults = list(_faults(wanted)) if strict else []
    if faults:
        raise ModelError(
            f"{name} keeps weights in files beside it: " + "; ".join(faults[:8])
            + ". Put them back, or export the model again"
        )  # fmt: skip


def _faults(wanted: dict[Path, int]) -> Iterator[str]:
    for path, size in wanted.items():
        if not path.exists():
            yield f"{printable(path)} is missing"
        elif not path.is_file():
            yield f"{printable(path)} is not a file"
        elif path.stat().st_size < size:
            yield f"{printable(path)} has {path.stat().st_size:,} bytes, expected {size:,}"


def rebind(model: ir.Model, like: ir.Model) -> None:
    """Bind what was made of `like` by way of a message, which forgets where the files are."""
    for value in like.graph.initializers.values():
        tensor = value.const_value
        if isinstance(tensor, FileTensor):
            return bind(model, tensor.folder)
        if isinstance(tensor, ir.ExternalTensor):  # of a caller's own model
            return bind(model, Folder(Path(tensor.base_dir) / "model.onnx"))


def bind(model: ir.Model, folder: Folder) -> None:
    """Have every external tensor of `model` read its checked file, those of subgraphs and functions too."""

    def bound(tensor):
        is_loose = isinstance(tensor, ir.ExternalTensor) and not isinstance(tensor, FileTensor)
        return FileTensor.of(tensor, folder) if is_loose else tensor

    for graph in model.graphs():
        for value in graph.initializers.values():
            value.const_value = bound(value.const_value)
    for graph in (model.graph, *model.functions.values()):
        for node in ir.traversal.RecursiveGraphIterator(graph):
            for key, attribute in list(node.attributes.items()):
                if attribute.is_ref():
                    continue
                if attribute.type == ir.AttributeType.TENSOR:
                    tensor = bound(attribute.value)
                    if tensor is not attribute.value:
                        node.attributes[key] = ir.AttrTensor(key, tensor)
                elif attribute.type == ir.AttributeType.TENSORS:
                    node.attributes[key] = ir.AttrTensors(key, [bound(t) for t in attribute.value])
