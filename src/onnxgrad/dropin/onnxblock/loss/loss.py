"""The losses: each takes the name of a prediction, adds an input for the target, and returns the loss.

Where the model has a value of the target's name already, that one is used.
"""

from __future__ import annotations

import numpy as np
import onnx

from onnxgrad.dropin.onnxblock import blocks
from onnxgrad.dropin.onnxblock._graph_utils import (
    generate_graph_name,
    get_output_from_output_name,
    given,
    node_arg_exists,
    skip,
)
from onnxgrad.dropin.onnxblock.building import add_initializer, add_node
from onnxgrad.errors import DropInError

_REDUCTIONS = {"mean": "ReduceMean", "sum": "ReduceSum", "none": None}


def _check_reduction(reduction: str) -> str:
    if reduction not in _REDUCTIONS:
        raise DropInError(
            f"Reduction {reduction} not supported. Expected one of {', '.join(_REDUCTIONS)}"
        )
    return reduction


def _reduce(model: onnx.ModelProto, loss: str, reduction: str) -> str:
    kind = _REDUCTIONS[reduction]
    return loss if kind is None else add_node(model, kind, [loss], keepdims=0)


def _target_like(model: onnx.ModelProto, prediction: str, name: str) -> str:
    if not node_arg_exists(model, name):
        blocks.InputLike(prediction)(name)
    return name


class MSELoss(blocks.Block):
    """reduce((prediction - target)²)"""

    def __init__(self, reduction: str = "mean"):
        super().__init__()
        self._reduction = _check_reduction(reduction)
        self._sub = blocks.Sub()
        self._square = blocks.Pow(2.0)

    def build(self, loss_input_name: str, target_name: str = "target"):
        target = _target_like(self.base, loss_input_name, target_name)
        square = self._square(self._sub(loss_input_name, target))
        return _reduce(self.base, square, self._reduction)


class L1Loss(blocks.Block):
    """reduce(|prediction - target|)"""

    def __init__(self, reduction: str = "mean"):
        super().__init__()
        self._reduction = _check_reduction(reduction)
        self._abs = blocks.Abs()
        self._sub = blocks.Sub()

    def build(self, loss_input_name: str, target_name: str | None = "target"):
        target = _target_like(self.base, loss_input_name, target_name)
        distance = self._abs(self._sub(loss_input_name, target))
        return _reduce(self.base, distance, self._reduction)


class CrossEntropyLoss(blocks.Block):
    """reduce(-weight[label]·log softmax(scores)[label]); labels of `ignore_index` do not count.

    The labels have the shape of the scores without their last dimension.
    """

    def __init__(self, weight=None, reduction: str = "mean", ignore_index: int | None = None):
        super().__init__()
        self._reduction = _check_reduction(reduction)
        self._weight = weight
        self._ignore_index = ignore_index

    def build(self, scores_input_name: str, labels_name: str = "labels"):
        if not node_arg_exists(self.base, labels_name):
            self._add_labels(scores_input_name, labels_name)
        inputs = [scores_input_name, labels_name]
        if self._weight is not None:
            inputs.append(add_initializer(self.base, "celoss.weight", self._weight))
        else:
            skip(1)
        loss = generate_graph_name("loss")
        node = onnx.helper.make_node(
            "SoftmaxCrossEntropyLoss", inputs, [loss, generate_graph_name("log_prob")],
            name=generate_graph_name("SoftmaxCrossEntropyLoss"), reduction=self._reduction,
            ignore_index=self._ignore_index,
        )  # fmt: skip
        self.base.graph.node.append(node)
        return loss

    def _add_labels(self, scores: str, name: str) -> None:
        value = onnx.ValueInfoProto()
        value.CopyFrom(get_output_from_output_name(self.base, scores))
        value.name = name
        value.type.tensor_type.elem_type = onnx.TensorProto.INT64
        del value.type.tensor_type.shape.dim[-1]
        self.base.graph.input.append(value)


class BCEWithLogitsLoss(blocks.Block):
    """reduce(weight·((1 - t)·x + (1 + (pos_weight - 1)·t)·softplus(-x))), the logits x and target t.

    It is -(pos_weight·t·log σ(x) + (1 - t)·log(1 - σ(x))), and stays finite for every x.
    """

    def __init__(self, weight=None, reduction: str = "mean", pos_weight=None):
        super().__init__()
        self._reduction = _check_reduction(reduction)
        self._weight = weight
        self._pos_weight = pos_weight

    def build(self, loss_input_name: str, target_name: str = "target"):
        model, x, start = self.base, loss_input_name, given()
        t = target_name
        if not node_arg_exists(model, t):
            value = onnx.ValueInfoProto()
            value.CopyFrom(get_output_from_output_name(model, x))
            value.name = t
            model.graph.input.append(value)
        one = add_initializer(model, "bceloss.sub_ones", np.ones(1, np.float32))
        negative = add_node(model, "Mul", [add_node(model, "Sub", [one, t]), x])
        softplus = add_node(model, "Softplus", [add_node(model, "Neg", [x])])
        if self._pos_weight is not None:
            extra = np.asarray(self._pos_weight) - 1
            extra = add_initializer(model, "bceloss.pos_weight", extra.astype(np.float32))
            share = add_node(model, "Add", [one, add_node(model, "Mul", [extra, t])])
            softplus = add_node(model, "Mul", [share, softplus])
        loss = add_node(model, "Add", [negative, softplus])
        if self._weight is not None:
            weight = add_initializer(model, "bceloss.weight", np.asarray(self._weight))
            loss = add_node(model, "Mul", [weight, loss])
        weights = (self._weight is not None) + (self._pos_weight is not None)
        skip(22 + 2 * weights, since=start)  # the old formula has more nodes
        return _reduce(model, loss, self._reduction)
