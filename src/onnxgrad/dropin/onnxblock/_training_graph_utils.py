"""From a model with its loss to a training model and an evaluation model; the names are the old package's.

In both, parameters are inputs. The training model's outputs are those of the block, then for each trained value a flag:

    <p>_grad.accumulation.buffer, <p>_grad, lazy_reset_grad → InPlaceAccumulatorV2 → <p>_grad.accumulation.out
"""

from __future__ import annotations

import logging

import onnx
from onnx import TensorProto, helper

from onnxgrad.autodiff import grad
from onnxgrad.contracts import DOMAIN, OPSET
from onnxgrad.dropin.old.training_model import ACCUMULATOR, BUFFER, DONE, RESET
from onnxgrad.dropin.onnxblock import opsets
from onnxgrad.errors import DropInError
from onnxgrad.model.modes import to_inference

Parameters = tuple[list[onnx.TensorProto], list[onnx.TensorProto]]


def get_model_parameters(
    model: onnx.ModelProto, requires_grad: set[str], frozen_params: set[str]
) -> Parameters:
    """Return the initializers that are trained, and those that are frozen, in the model's order."""
    initializers = list(model.graph.initializer)
    return tuple(
        [_copy(t) for t in initializers if t.name in names]
        for names in (requires_grad, frozen_params)
    )


def build_gradient_graph(
    model: onnx.ModelProto,
    requires_grad: set[str],
    frozen_params: set[str],
    output_names: list[str] | str,
    custom_op_library: str | None = None,
) -> tuple[onnx.ModelProto, onnx.ModelProto]:
    """Return the training model, without accumulators, and the evaluation model.

    The first of `output_names` is the loss. The outputs of the training model are `output_names`, then
    `<name>_grad` for everything in `requires_grad`, in the order of the inputs. `model` is changed: its
    parameters become inputs. A custom operator library does not matter for gradients.
    """
    del custom_op_library
    outputs = [output_names] if isinstance(output_names, str) else list(output_names)
    _expect_known(model, requires_grad)
    _move_initializers_to_inputs(model, requires_grad | frozen_params)
    evaluation = _copy(model)
    _disable_training_mode(evaluation)
    order = [v.name for v in model.graph.input if v.name in requires_grad]
    training = _with_gradients(model, outputs, order) if order else _copy(model)
    _import_ours(training)
    return training, evaluation


def build_gradient_accumulation_graph(grad_model: onnx.ModelProto, requires_grad: set[str]) -> None:
    """Let each gradient of a training model end in a buffer, and its output become a flag."""
    wanted = {f"{name}_grad" for name in requires_grad}
    graph = grad_model.graph
    outputs = [_copy(v) for v in graph.output]
    for place, gradient in enumerate(outputs):
        if gradient.name not in wanted:
            continue
        name = gradient.name.removesuffix("_grad")
        node = helper.make_node(
            ACCUMULATOR, [name + BUFFER, gradient.name, RESET], [name + DONE],
            name=f"GradientAccumulator{place}", domain=DOMAIN,
        )  # fmt: skip
        graph.node.append(node)
        gradient.name = name + BUFFER
        graph.input.append(gradient)
        outputs[place] = helper.make_tensor_value_info(name + DONE, TensorProto.BOOL, [1])
    del graph.output[:]
    graph.output.extend(outputs)
    graph.input.append(helper.make_tensor_value_info(RESET, TensorProto.BOOL, [1]))


def _disable_training_mode(model: onnx.ModelProto) -> None:
    """Bring BatchNormalization and Dropout into inference form."""
    to_inference(model)


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


def _move_initializers_to_inputs(model: onnx.ModelProto, initializer_names: set[str]) -> None:
    """Turn the named initializers into inputs, so that sessions share their memory."""
    graph = model.graph
    present = {v.name for v in graph.input}
    kept = []
    for tensor in graph.initializer:
        if tensor.name not in initializer_names:
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
    names = [v.name for v in training.graph.output[-len(trained) :]]
    for parameter, name in zip(trained, names, strict=True):
        if name != f"{parameter}_grad":
            raise DropInError(
                f"the model has a value {parameter + '_grad'!r} of its own, which is the name of the "
                f"gradient of {parameter!r}; rename it"
            )
    if of != loss:
        kept = [_copy(v) for v in training.graph.output if v.name != of]
        del training.graph.output[:]
        training.graph.output.extend(kept)
    opsets.keep(training, model)
    return training


def _scalar(model: onnx.ModelProto, loss: str) -> str:
    """Return the name of the loss, or of the sum of its elements where there are several."""
    value = next(v for v in model.graph.output if v.name == loss)
    tensor = value.type.tensor_type
    dims = [d.dim_value if d.HasField("dim_value") else 0 for d in tensor.shape.dim]
    if tensor.HasField("shape") and all(d == 1 for d in dims):
        return loss
    name = f"{loss}/sum"
    logging.getLogger(__name__).warning(
        "%r is minimised, and holds several numbers: their sum is taken. A loss gives one number",
        loss,
    )
    model.graph.node.append(helper.make_node("ReduceSum", [loss], [name], name=name, keepdims=0))
    model.graph.output.append(helper.make_tensor_value_info(name, tensor.elem_type, []))
    return name


def _import_ours(model: onnx.ModelProto) -> None:
    if all(o.domain != DOMAIN for o in model.opset_import):
        model.opset_import.append(helper.make_opsetid(DOMAIN, OPSET))
