"""Blocks: each adds a piece to the model under construction and returns the name of its result."""

from __future__ import annotations

import os
import tempfile
from abc import ABC, abstractmethod
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

from onnxgrad.contracts import DOMAIN
from onnxgrad.dropin.onnxblock import building, model_accessor
from onnxgrad.dropin.onnxblock._graph_utils import generate_graph_name
from onnxgrad.dropin.onnxblock.building import add_initializer, add_node
from onnxgrad.errors import DropInError

LARGE = 1 << 31  # bytes: protobuf ends here, and onnx then works on files


class Block(ABC):
    """Base of all blocks. A subclass writes `build`, which changes `self.base`, an onnx.ModelProto.

    A call of the block inside `with onnxblock.base(model):` runs `build` and checks the model.
    """

    base: onnx.ModelProto | None = None

    def __init__(self, temp_file_name="temp.onnx"):
        if os.path.isabs(temp_file_name):
            raise DropInError(
                f"temp_file_name is {temp_file_name!r}. Please pass in a relative path for the "
                "temp_file_name."
            )
        self.base = None

    @abstractmethod
    def build(self, *args, **kwargs):
        """Add this block to `self.base`; return the names of its results."""

    def __call__(self, *args, **kwargs):
        """Run `build` on the model under construction, and check what came of it."""
        self.base = model_accessor.current().model
        output = self.build(*args, **kwargs)
        check(self.base)
        return output

    def infer_shapes_on_base(self):
        """Return the model under construction with the shapes that can be told."""
        return infer_shapes(model_accessor.current().model)


def check(model: onnx.ModelProto) -> None:
    """Raise onnx's own error where the model is not valid."""
    if model.ByteSize() < LARGE:
        onnx.checker.check_model(model, True)
        return
    with tempfile.TemporaryDirectory() as folder:
        onnx.checker.check_model(_write(model, folder), True)


def infer_shapes(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return the model with the shapes that can be told."""
    if model.ByteSize() < LARGE:
        return onnx.shape_inference.infer_shapes(model)
    with tempfile.TemporaryDirectory() as folder:
        path = _write(model, folder)
        onnx.shape_inference.infer_shapes_path(path)
        return onnx.load(path)


def _write(model: onnx.ModelProto, folder: str) -> str:
    path = os.path.join(folder, "model.onnx")
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    onnx.save(copy, path, save_as_external_data=True, location="model.onnx.data")
    return path


# ---- operators


class _BinaryOp(Block):
    def __init__(self, op_name):
        super().__init__()
        self._op_name = op_name

    def build(self, input_name1, input_name2):
        return add_node(self.base, self._op_name, [input_name1, input_name2])


class Add(_BinaryOp):
    """input_name1 + input_name2"""

    def __init__(self):
        super().__init__("Add")


class Sub(_BinaryOp):
    """input_name1 - input_name2"""

    def __init__(self):
        super().__init__("Sub")


class Mul(_BinaryOp):
    """input_name1 · input_name2"""

    def __init__(self):
        super().__init__("Mul")


class Div(_BinaryOp):
    """input_name1 / input_name2"""

    def __init__(self):
        super().__init__("Div")


class Pow(Block):
    """The input to the power of a number."""

    def __init__(self, exponent):
        super().__init__()
        self._exponent = exponent

    def build(self, pow_input_name):
        exponent = add_initializer(
            self.base, "pow_exponent", np.array([self._exponent], np.float32)
        )
        return add_node(self.base, "Pow", [pow_input_name, exponent])


class _UnaryOp(Block):
    def __init__(self, op_name, **attributes):
        super().__init__()
        self._op_name = op_name
        self._attributes = attributes

    def build(self, input_name):
        return add_node(self.base, self._op_name, [input_name], **self._attributes)


class ReduceMean(_UnaryOp):
    """The mean of all elements."""

    def __init__(self, keepdims=True):
        super().__init__("ReduceMean", keepdims=int(keepdims))


class ReduceSum(_UnaryOp):
    """The sum of all elements."""

    def __init__(self, keepdims=True):
        super().__init__("ReduceSum", keepdims=int(keepdims))


class Sigmoid(_UnaryOp):
    """1 / (1 + exp(-x))"""

    def __init__(self):
        super().__init__("Sigmoid")


class Log(_UnaryOp):
    """The natural logarithm."""

    def __init__(self):
        super().__init__("Log")


class Neg(_UnaryOp):
    """-x"""

    def __init__(self):
        super().__init__("Neg")


class Abs(_UnaryOp):
    """|x|"""

    def __init__(self):
        super().__init__("Abs")


class Constant(Block):
    """A number, as a float initializer of shape [1]."""

    def __init__(self, value_float):
        super().__init__()
        self._value = value_float

    def build(self):
        return add_initializer(self.base, "initializer", np.array([self._value], np.float32))


class SequenceConstruct(Block):
    """A sequence of tensors."""

    def build(self, *sequence_input_names):
        return add_node(self.base, "SequenceConstruct", sequence_input_names)


class ReduceAllL2(Block):
    """The norm of all elements of all tensors together."""

    def build(self, *reduce_node_input_names):
        output = add_node(self.base, "ReduceAllL2", reduce_node_input_names, domain=DOMAIN)
        info = helper.make_tensor_value_info(output, TensorProto.FLOAT, [1])
        self.base.graph.value_info.append(info)
        return output


class Clip(Block):
    """The input, kept between two numbers; None is no limit."""

    def __init__(self, clip_min=None, clip_max=None):
        super().__init__()
        self._min = clip_min
        self._max = clip_max

    def build(self, clip_input_name):
        limits = [
            "" if limit is None else add_initializer(self.base, what, np.array(limit, np.float32))
            for what, limit in (("clip_min", self._min), ("clip_max", self._max))
        ]
        return add_node(self.base, "Clip", [clip_input_name, *limits])


class PassThrough(Block):
    """The inputs themselves, as a tuple."""

    def build(self, *input_names):
        return input_names


class InputLike(Block):
    """A new input of the model, of the type and shape of an input or output that is there."""

    def __init__(self, like: str):
        super().__init__()
        self._like = like

    def build(self, input_name: str | None = None):
        graph = self.base.graph
        found = building.find((*graph.input, *graph.output), self._like)
        if found is None:
            raise LookupError(f"Could not find input or output with name {self._like}")
        value = onnx.ValueInfoProto()
        value.CopyFrom(found)
        value.name = input_name or generate_graph_name("input")
        graph.input.append(value)
        return value.name


class LabelEncoder(Block):
    """Each element replaced by the value that stands for its key."""

    def __init__(
        self,
        default_float: float = 0.0,
        default_int64: int = -1,
        default_string: str = "_Unused",
        keys_floats: list[float] | None = None,
        keys_int64s: list[int] | None = None,
        keys_strings: list[str] | None = None,
        values_floats: list[float] | None = None,
        values_int64s: list[int] | None = None,
        values_strings: list[str] | None = None,
    ):
        super().__init__()
        given: dict[str, Any] = {
            "default_float": default_float, "default_int64": default_int64,
            "default_string": default_string,
            "keys_floats": keys_floats, "keys_int64s": keys_int64s, "keys_strings": keys_strings,
            "values_floats": values_floats, "values_int64s": values_int64s,
            "values_strings": values_strings,
        }  # fmt: skip
        self._attributes = {k: v for k, v in given.items() if v is not None}

    def build(self, label_encoder_input_name: str):
        result = generate_graph_name("label_encoder.output")
        inputs = [label_encoder_input_name]
        return add_node(
            self.base,
            "LabelEncoder",
            inputs,
            result=result,
            domain="ai.onnx.ml",
            **self._attributes,
        )


class Cast(Block):
    """The input in another type."""

    def __init__(self, to: onnx.TensorProto.DataType):
        super().__init__()
        self._to = to

    def build(self, cast_input_name: str):
        result = generate_graph_name("cast.output")
        return add_node(self.base, "Cast", [cast_input_name], result=result, to=self._to)


class Linear(Block):
    """alpha·x·W + beta·b with a new W [in, out] and b [out], drawn from a normal distribution."""

    def __init__(self, in_features, out_features, bias=True, alpha=1.0, beta=1.0):
        super().__init__()
        self._shape = in_features, out_features
        self._bias = bias
        self._alpha = alpha
        self._beta = beta

    def build(self, linear_input_name: str):
        wide, high = self._shape
        inputs = [linear_input_name]
        inputs.append(add_initializer(self.base, "linear.weight", _normal(wide, high)))
        if self._bias:
            inputs.append(add_initializer(self.base, "linear.bias", _normal(high)))
        result = generate_graph_name("linear.output")
        return add_node(
            self.base, "Gemm", inputs, result=result, alpha=self._alpha, beta=self._beta
        )


def _normal(*shape: int) -> np.ndarray:
    return np.random.randn(*shape).astype(np.float32)
