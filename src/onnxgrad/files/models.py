"""The only reader of ONNX files: a path, bytes or a message becomes a checked message, or a sentence."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import onnx
import onnx_ir as ir

from onnxgrad.errors import FileError, LimitError, ModelError, OnnxGradError
from onnxgrad.files import external, hub, limits, tensors
from onnxgrad.files.maps import without_maps
from onnxgrad.files.paths import is_path, name_of, printable, read_bytes, regular_file, root
from onnxgrad.files.text import check_brackets

LARGEST = 1 << 31  # bytes: a protobuf message ends there


class ModelFile(os.PathLike):
    """A path whose file is read and checked once: whatever takes the path of a model takes it.

    A command makes one of its argument and hands it on. The message is shared by all who read it.
    """

    def __init__(self, path: str | os.PathLike[str]):
        self._name, self._proto = os.fspath(path), None
        self._path = "" if hub.is_hub(self._name) else self._name  # downloaded when it is asked for

    @staticmethod
    def of(model: Any) -> Any:
        """A path as such a file; anything else as it is."""
        return ModelFile(model) if is_path(model) and not isinstance(model, ModelFile) else model

    def __fspath__(self) -> str:
        if not self._path:
            self._path = str(hub.local(self._name))
        return self._path

    def __str__(self) -> str:
        """The name that a person gave it; of a model of the hub, its address."""
        return self._name

    def proto(self) -> onnx.ModelProto:
        """The message in the file. Who would change it makes a copy."""
        if self._proto is None:
            self._proto = read_proto(os.fspath(self))
        return self._proto


def read_proto(model: Any) -> onnx.ModelProto:
    """The message in a file or in bytes, checked; weights in external files stay there.

    Raises MissingFileError, FileError or ModelError, with the file and the reason.
    """
    if isinstance(model, ModelFile):
        return model.proto()
    if is_path(model):
        path = Path(model)
        proto = _parse(_content(path), path)
    elif isinstance(model, (bytes, bytearray, memoryview)):
        path, proto = None, _parse(bytes(model), None)
    elif isinstance(model, onnx.ModelProto):
        path, proto = None, model
    else:
        raise ModelError(
            f"model is a {type(model).__name__}, expected a path, bytes, "
            "an onnx.ModelProto or an onnx_ir.Model"
        )
    _check(proto, path, name_of(model))
    return proto


def read_ir(model: Any) -> ir.Model:
    """As `read_proto`, in onnx-ir's form, with the external weights bound to their checked files."""
    if isinstance(model, ir.Model):
        return model
    return to_ir(read_proto(model), model)


def to_ir(proto: onnx.ModelProto, model: Any) -> ir.Model:
    """`proto`, which is what `model` holds, in onnx-ir's form."""
    try:
        made = ir.from_proto(without_maps(proto))
    except ModelError as error:
        raise ModelError(f"{name_of(model)}: {error}") from error
    except Exception as error:  # onnx-ir has no class for it: KeyError, TypeError, SerdeError
        raise ModelError(f"{_holder(model)} malformed: {root(error)}") from error
    sort(made)
    external.bind(made, external.Folder(Path(model) if is_path(model) else None))
    return made


def sort(model: ir.Model) -> None:
    """Put makers before readers: onnxruntime takes nodes in any order, and its own converters append some."""
    try:
        model.graph.sort()
    except ValueError as error:
        raise ValueError("the model's graph has a cycle, expected an acyclic graph") from error


def read_whole(model: Any) -> onnx.ModelProto:
    """The message with its external weights inside it."""
    proto = read_proto(model)
    if isinstance(model, ModelFile):
        proto = copied(proto)
    path = Path(model) if is_path(model) else None
    folder = external.Folder(path)
    for tensor in tensors.tensors(proto):
        if external.is_external(tensor):
            where = external.place(tensor)
            with folder.open(where.location) as file:
                file.seek(where.offset)
                tensor.raw_data = file.read(where.length)
            tensor.ClearField("external_data")
            tensor.data_location = onnx.TensorProto.DEFAULT
    return proto


def copied(proto: onnx.ModelProto) -> onnx.ModelProto:
    """A copy that may be changed."""
    copy = onnx.ModelProto()
    copy.CopyFrom(proto)
    return copy


def _holder(model: Any) -> str:
    return f"the file {name_of(model)!r} is" if is_path(model) else "the model is"


def _content(path: Path) -> bytes:
    size = regular_file(path, "an ONNX file").st_size
    if size == 0:
        raise ModelError(f"{printable(path)} is empty, expected an ONNX model")
    if size >= LARGEST:
        raise ModelError(
            f"{printable(path)} has {size:,} bytes, and an ONNX file ends at {LARGEST:,}: export the model "
            "with its weights in external data"
        )
    return read_bytes(path, "an ONNX file")


def _parse(data: bytes, path: Path | None) -> onnx.ModelProto:
    ending = "" if path is None else path.suffix
    kind = onnx.serialization.registry.get_format_from_file_extension(ending)
    try:
        if kind == "onnxtxt":
            check_brackets(data.decode())
        return onnx.load_model_from_string(data, format=kind or "protobuf")
    except LimitError as error:
        raise LimitError(f"{printable(path)}: {error}") from error
    except Exception as error:  # protobuf's own classes, by format
        who = f"the file {printable(path)!r} holds" if path is not None else "the bytes hold"
        raise ModelError(f"{who} no ONNX model: {printable(root(error))}") from error


def _check(proto: onnx.ModelProto, path: Path | None, name: str) -> None:
    """What no reader after this one looks at, or each in its own way."""
    try:
        count = _node_count(proto)
        limits.check("nodes", count, f"it has {count:,} nodes")
        _check_opsets(proto)
        for graph in tensors.graphs(proto.graph, *proto.functions):
            _check_names(graph)
        for tensor in tensors.tensors(proto):
            tensors.check(tensor)
        external.check(tensors.tensors(proto), path, name, strict=path is not None)
    except (ModelError, FileError) as error:
        text = str(error)
        raise type(error)(text if text.startswith(name) else f"{name}: {text}") from error


def _check_opsets(proto: onnx.ModelProto) -> None:
    imports = [*proto.opset_import, *(o for f in proto.functions for o in f.opset_import)]
    for each in imports:
        if not 0 <= each.version < 1 << 31 or (each.version == 0 and not each.domain):
            name = printable(each.domain) or "ai.onnx"
            raise ModelError(f"it imports opset {each.version} of {name}, which does not exist")


def _check_names(graph: tensors.Part) -> None:
    """No tensor is made twice, and no name is a book."""
    made = [name for node in graph.node for name in node.output if name]
    if isinstance(graph, onnx.GraphProto):
        for tensor in graph.sparse_initializer:
            raise ModelError(
                f"the tensor {printable(tensor.values.name)!r} is kept as a sparse one, which is not read: export the "
                "model with dense weights"
            )
        made += [tensor.name for tensor in graph.initializer]
    twice = [name for name, times in Counter(made).items() if times > 1]
    if twice:
        raise ModelError(f"the tensor {printable(twice[0])!r} is made twice, expected one maker")
    longest = max(map(len, [*made, *_names(graph)]), default=0)
    limits.check("name", longest, f"a name in it has {longest:,} characters")


def _names(graph: tensors.Part) -> Iterator[str]:
    """What a graph calls its values, nodes and attributes, beside what its nodes make."""
    yield graph.name
    if isinstance(graph, onnx.GraphProto):
        for value in (*graph.input, *graph.output, *graph.value_info):
            yield value.name
            yield from (d.dim_param for d in value.type.tensor_type.shape.dim)
    for node in graph.node:
        yield from (node.name, node.op_type, node.domain, *node.input)
        yield from (attribute.name for attribute in node.attribute)


def _node_count(proto: onnx.ModelProto) -> int:
    """The nodes of a model when every function is put in the place of its calls.

    Raises ModelError for a function that calls itself, LimitError for one nested too deep.
    """
    functions = {(f.domain, f.name): f for f in proto.functions}
    sizes: dict[tuple[str, str], int] = {}
    depths: dict[tuple[str, str], int] = {}
    for key in functions:
        _measure(key, functions, sizes, depths)
    deepest = max(depths.values(), default=0)
    limits.check("depth", deepest, f"its functions call each other {deepest:,} deep")
    return _size(tensors.nodes(proto.graph), sizes)


def _measure(key, functions, sizes, depths) -> None:
    """Depth first, with a stack: a chain may be longer than Python's own."""
    stack, open_calls = [key], set()
    while stack:
        top = stack[-1]
        if top in sizes:
            stack.pop()
            continue
        inside = tensors.nodes(functions[top])
        calls = {c for n in inside if (c := (n.domain, n.op_type)) in functions}
        waits = [c for c in calls if c not in sizes]
        if (top in open_calls and waits) or top in calls:
            raise ModelError(f"the function {printable(top[1])!r} calls itself")
        open_calls.add(top)
        if waits:
            stack.extend(waits)
            continue
        sizes[top] = _size(inside, sizes)
        depths[top] = 1 + max((depths[c] for c in calls), default=0)
        stack.pop()


def _size(nodes: list[onnx.NodeProto], sizes: dict[tuple[str, str], int]) -> int:
    """Nodes count as much as they make: every output is a value that each pass looks at."""
    return sum(max(sizes.get((n.domain, n.op_type), 1), len(n.output)) for n in nodes)


def data_files(model: str | os.PathLike[str]) -> list[Path]:
    """The files in which the model at a path keeps weights; none where there is no such model."""
    try:
        proto = read_proto(model)
    except (OnnxGradError, OSError):
        return []
    folder = external.Folder(Path(model))
    places = [external.place(t) for t in tensors.tensors(proto) if external.is_external(t)]
    return [folder.file(location) for location in dict.fromkeys(p.location for p in places)]
