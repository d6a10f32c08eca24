"""If: the gradient is another If, whose bodies are the gradients of its bodies.

What a body computes for its own backward pass leaves it through new outputs of the forward node,
so that nothing is computed twice. The branch that does not have a value gives an empty tensor.
"""

import numpy as np
import onnx_ir as ir

from onnxgrad.autodiff.rule import rule, unsupported
from onnxgrad.graph.bodies import captured as read_by
from onnxgrad.graph.bodies import replace_reads
from onnxgrad.graph.sequences import REWRITTEN


@rule("If", wrt="")
def if_(op, cond, doutputs, *, node, captured, inside):
    """Each branch gives the gradients of all outer values that either of them reads."""
    names = ("then_branch", "else_branch")
    forward = {name: node.attributes[name].value for name in names}
    backward = {name: inside(body, doutputs, captured) for name, body in forward.items()}
    branches = {}
    for name, (nodes, gradients) in backward.items():
        _keep(op, node, forward[name], nodes)
        branches[name] = ir.Graph([], gradients, nodes=nodes, name=op.fresh(f"grad/{name}"))
    results = op.emit("If", [cond], branches, len(captured))
    results = results if isinstance(results, tuple) else (results,)
    for value, result in zip(captured, results, strict=True):
        result.dtype, result.shape = value.dtype, value.shape
    return dict(zip(captured, results, strict=True))


def _keep(op, node, body, nodes):
    """Let backward nodes read what a body computed by outputs of the forward node."""
    kept = {}

    def outer(value):
        if value.producer() is None or value.producer().graph is not body:
            return value
        if value not in kept:
            kept[value] = _output_for(op, node, body, value)
        return kept[value]

    for reader in nodes:
        for value in (*reader.inputs, *read_by(reader)):
            if value is not None:
                outer(value)
    replace_reads(nodes, outer)


def _output_for(op, node, body, value):
    """The node's output that gives a value of one body; a new one where there is none."""
    for i, own in enumerate(body.outputs):
        if own is value:
            return node.outputs[i]
    node.resize_outputs(len(node.outputs) + 1)
    new = node.outputs[-1]
    new.name, new.dtype = op.fresh(f"{value.name}/kept"), value.dtype
    new.shape = None if value.shape is None else ir.Shape([None] * len(value.shape))
    for attribute in node.attributes.values():
        other = attribute.value
        other.outputs.append(value if other is body else _nothing(op, other, value))
    return new


def _nothing(op, graph, like):
    """An empty tensor of the type and rank of `like`, made in `graph`."""
    rank = 1 if like.shape is None else len(like.shape)
    tensor = ir.tensor(np.zeros([0] * rank if rank else (), like.dtype.numpy()), dtype=like.dtype)
    node = ir.Node("", "Constant", [], [ir.AttrTensor("value", tensor)], num_outputs=1)
    node.outputs[0].name = op.fresh(f"{like.name}/nothing")
    node.outputs[0].dtype, node.outputs[0].shape = like.dtype, ir.Shape(tensor.shape)
    graph.append(node)
    return node.outputs[0]


unsupported(
    *REWRITTEN,
    because="handles a list of tensors whose length only the run knows",
    instead="export the model with lists of a fixed length, or with tensors in their place",
)
