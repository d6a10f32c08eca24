"""Writing a Scan: a step that is run along the first axis of some tensors."""

import onnx_ir as ir

_MATRIX = (None, None)


def scan(op, step, states, sequences, *, backwards):
    """Run `step(inner, *states, *slices)` for each slice; return final states and stacked results.

    The step writes nodes with `inner` and returns (new states, results), both lists. It may read
    any outer value. `backwards` runs from the last slice to the first; results stay in place.
    States, slices and results are matrices: onnxruntime must be told the rank of each.
    """
    inner = op.inside(ir.Graph([], [], nodes=[], name="step"))
    inputs = [_input(op, v, op.dims(v) or _MATRIX) for v in states]
    inputs += [_input(op, v, op.dims(v)[1:] if op.dims(v) else _MATRIX) for v in sequences]
    new, results = step(inner, *inputs)
    outputs = [inner.copy(v) for v in (*new, *results)]
    for value, like in zip(outputs, [*states, *results], strict=True):
        value.dtype, value.shape = like.dtype, like.shape or ir.Shape(_MATRIX)
    nodes = inner.finish_body(outputs)
    body = ir.Graph(inputs, outputs, nodes=nodes, name=op.fresh("grad/step"))
    direction = 1 if backwards else 0
    attributes = {
        "body": body,
        "num_scan_inputs": len(sequences),
        "scan_input_directions": [direction] * len(sequences),
        "scan_output_directions": [direction] * len(results),
    }
    made = op.emit("Scan", [*states, *sequences], attributes, outputs=[True] * len(outputs))
    length = (op.dims(sequences[0]) or (None,))[0]
    for value, inside in zip(made, outputs, strict=True):
        value.dtype, value.shape = inside.dtype, inside.shape
    for value, inside in zip(made[len(states) :], results, strict=True):
        value.shape = ir.Shape([length, *(op.dims(inside) or _MATRIX)])
    return list(made[: len(states)]), list(made[len(states) :])


def _input(op, like, shape):
    value = ir.Value(name=op.fresh("grad/step_input"))
    value.dtype, value.shape = like.dtype, ir.Shape(shape)
    return value
