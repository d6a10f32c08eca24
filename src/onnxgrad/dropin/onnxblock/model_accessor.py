"""The model that blocks are building: one at a time, between `with base(...)` and its end."""

from __future__ import annotations

import copy
import os
from collections.abc import Iterator
from contextlib import contextmanager

import onnx

from onnxgrad.errors import DropInError

OPSET_OF_EVERY_RUNTIME = 21  # the newest that onnxruntime 1.19 has


class ModelAccessor:
    """The model under construction, and the file that it came from, if any."""

    def __init__(self, model: onnx.ModelProto, model_path: str | None = None):
        self._model = model
        self._path = model_path

    @property
    def model(self) -> onnx.ModelProto:
        """The model in its present form."""
        if self._model is None:
            raise DropInError("there is no model to build on; use `with onnxblock.base(model):`")
        return self._model

    @property
    def path(self) -> str:
        """The file of the base model."""
        if self._path is None:
            raise DropInError(
                "the base model has no path; give one with `onnxblock.base(model, model_path)`"
            )
        return self._path

    @property
    def has_path(self) -> bool:
        """Whether the base model came from a file."""
        return self._path is not None


_GLOBAL_ACCESSOR: ModelAccessor | None = None
_GLOBAL_CUSTOM_OP_LIBRARY: str | os.PathLike | None = None


def current() -> ModelAccessor:
    """Return the accessor of the surrounding `with base(...)`."""
    if _GLOBAL_ACCESSOR is None:
        # an AttributeError, as in the old package
        raise AttributeError(
            "a block was called where no model is being built; call it inside "
            "`with onnxblock.base(model):` or `with onnxblock.empty_base():`"
        )
    return _GLOBAL_ACCESSOR


@contextmanager
def _building(accessor: ModelAccessor) -> Iterator[ModelAccessor]:
    global _GLOBAL_ACCESSOR
    if _GLOBAL_ACCESSOR is not None:
        raise DropInError("a model is being built already; end its `with` block before another")
    _GLOBAL_ACCESSOR = accessor
    try:
        yield accessor
    finally:
        _GLOBAL_ACCESSOR = None


@contextmanager
def base(model: onnx.ModelProto, model_path: str | None = None) -> Iterator[ModelAccessor]:
    """Let blocks build on a copy of `model`, which the accessor's `model` is."""
    if model is None:
        raise DropInError(
            "the base model is None; use onnxblock.empty_base() to start from nothing"
        )
    with _building(ModelAccessor(copy.deepcopy(model), model_path)) as accessor:
        yield accessor


@contextmanager
def empty_base(opset_version: int | None = None) -> Iterator[ModelAccessor]:
    """Let blocks build on a model without nodes, of an opset that every onnxruntime here knows."""
    version = opset_version or OPSET_OF_EVERY_RUNTIME
    imports = [onnx.helper.make_opsetid("com.microsoft", 1), onnx.helper.make_opsetid("", version)]
    # onnx writes newer file formats than onnxruntime reads; the oldest for the opset will do
    oldest = onnx.helper.find_min_ir_version_for([imports[1]])
    model = onnx.ModelProto(ir_version=oldest, producer_name="onnxgrad", opset_import=imports)
    model.graph.name = "graph"
    with _building(ModelAccessor(model)) as accessor:
        yield accessor


@contextmanager
def custom_op_library(custom_op_library_path: os.PathLike) -> Iterator[os.PathLike]:
    """Name the library of the custom operators of the model that is being built."""
    global _GLOBAL_CUSTOM_OP_LIBRARY
    if _GLOBAL_CUSTOM_OP_LIBRARY is not None:
        raise DropInError("a custom op library is set already; end its `with` block first")
    if not os.path.exists(custom_op_library_path):
        raise DropInError(f"Custom op library path {custom_op_library_path} does not exist.")
    _GLOBAL_CUSTOM_OP_LIBRARY = custom_op_library_path
    try:
        yield custom_op_library_path
    finally:
        _GLOBAL_CUSTOM_OP_LIBRARY = None
