"""From a model with its loss to a training model and an evaluation model.

In both, parameters are inputs. The training model's outputs are those of the block, then for each trained value a flag:

    <p>_grad.accumulation.buffer, <p>_grad, lazy_reset_grad → InPlaceAccumulatorV2 → <p>_grad.accumulation.out
"""

from __future__ import annotations

from collections.abc import Iterable

import onnx
from onnx import TensorProto, helper

from onnxgrad.autodiff import grad
from onnxgrad.contracts import DOMAIN, OPSET
from onnxgrad.dropin.old.training_model import ACCUMULATOR, BUFFER, DONE, RESET
from onnxgrad.dropin.onnxblock import opsets
from onnxgrad.errors import DropInError
from onnxgrad.model.modes import to_inference

Parameters = tuple[list[onnx.TensorProto], list[onnx.TensorProto]]


def parameters_of(
    model: onnx.ModelProto, trained: Iterable[str], frozen: Iterable[str]
) -> Parameters:
    """Return the initializers that are trained, and those that are frozen, in the model's order."""
    initializers = list(model.graph.initializer)
    return tuple([_copy(t) for t in initializers if t.name in names] for names in (trained, frozen))


def training_models(
    model: onnx.ModelProto, trained: set[str], frozen: set[str], outputs: list[str]
) -> tuple[onnx.ModelProto, onnx.ModelProto]:
    """Return the training and the evaluation model; the first of `outputs` is the loss."""
    _expect_known(model, trained)
    _make_inputs(model, trained | frozen)
    evaluation = _copy(model)
    to_inference(evaluation)
    order = [v.name for v in model.graph.input if v.name in trained]
    if order:
        training = _with_gradients(model, outputs, order)
    else:
        training = _copy(model)
        _import_ours(training)
    _add_accumulators(training, order)
    return training, evaluation


def _copy(proto):
    return type(proto).FromString(proto.SerializeToString())


def _expect_known(model: onnx.ModelProto, trained: set[str]) -> None:
    graph = model.graph
    known = {v.name for v in (*graph.input, *graph.initializer)}
    unknown = sorted(trained - known)
    if unknown:
        made = {o for n in graph.node for o in n.output}
        why = " (a value that a node computes)" if unknown[0] in made else ""
        listed = ", ".join(repr(t.name) for t in graph.initializer[:6])
        raise DropInError(
            f"requires_grad names {unknown[0]!r}{why}, which is not found in the graph as a "
            f"parameter or an input; parameters are {listed}"
        )


def _make_inputs(model: onnx.ModelProto, names: set[str]) -> None:
    """Turn the named initializers into inputs, so that sessions share their memory."""
    graph = model.graph
    present = {v.name for v in graph.input}
    kept = []
    for tensor in graph.initializer:
        if tensor.name not in names:
            kept.append(_copy(tensor))
        elif tensor.name not in present:
            info = helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims)
            graph.input.append(info)
    del graph.initializer[:]
    graph.initializer.extend(kept)


def _with_gradients(
    model: onnx.ModelProto, outputs: list[str], trained: list[str]
) -> onnx.ModelProto:
    """Return the model with an output `<name>_grad` for each trained value."""
    loss = outputs[0]
    of = _scalar(model, loss)
    training = grad(opsets.raised(model), of=of, wrt=trained)
    if of != loss:
        kept = [_copy(v) for v in training.graph.output if v.name != of]
        del training.graph.output[:]
        training.graph.output.extend(kept)
    opsets.keep(training, model)
    _import_ours(training)
    return training


def _scalar(model: onnx.ModelProto, loss: str) -> str:
    """Return the name of the loss, or of the sum of its elements where there are several."""
    value = next(v for v in model.graph.output if v.name == loss)
    tensor = value.type.tensor_type
    dims = [d.dim_value if d.HasField("dim_value") else 0 for d in tensor.shape.dim]
    if tensor.HasField("shape") and all(d == 1 for d in dims):
        return loss
    name = f"{loss}/sum"
    model.graph.node.append(helper.make_node("ReduceSum", [loss], [name], name=name, keepdims=0))
    model.graph.output.append(helper.make_tensor_value_info(name, tensor.elem_type, []))
    return name


def _import_ours(model: onnx.ModelProto) -> None:
    if all(o.domain != DOMAIN for o in model.opset_import):
        model.opset_import.append(helper.make_opsetid(DOMAIN, OPSET))


def _add_accumulators(model: onnx.ModelProto, trained: list[str]) -> None:
    """Let each gradient end in a buffer: the last outputs, one per trained value, become flags."""
    graph = model.graph
    first = len(graph.output) - len(trained)
    gradients = [_copy(v) for v in graph.output[first:]]
    del graph.output[first:]
    for number, (name, gradient) in enumerate(zip(trained, gradients, strict=True)):
        node = helper.make_node(
            ACCUMULATOR, [name + BUFFER, gradient.name, RESET], [name + DONE],
            name=f"GradientAccumulator{number}", domain=DOMAIN,
        )  # fmt: skip
        graph.node.append(node)
        gradient.name = name + BUFFER
        graph.input.append(gradient)
        graph.output.append(helper.make_tensor_value_info(name + DONE, TensorProto.BOOL, [1]))
    graph.input.append(helper.make_tensor_value_info(RESET, TensorProto.BOOL, [1]))
