"""Training modes of operators that act differently in training: BatchNormalization, Dropout."""

from __future__ import annotations

from collections import Counter

import onnx_ir as ir


def train_batch_norm(
    model: ir.Model, trainable: set[str], notes: list[str]
) -> dict[str, str]:
    """Let batch normalisations use the statistics of the batch; return name -> name of its update.

    Only those whose scale or bias is trained: a frozen layer keeps its statistics too. The new
    running statistics are outputs of the node: momentum·old + (1 - momentum)·batch.
    """
    nodes = [n for n in model.graph if n.op_type == "BatchNormalization" and not n.domain]
    used = Counter(v.name for n in nodes for v in n.inputs[3:5])
    updates: dict[str, str] = {}
    for node in nodes:
        scale, bias, mean, var = node.inputs[1:5]
        if scale.name not in trainable and bias.name not in trainable:
            _set_training(node, False)
            continue
        name = node.name or node.outputs[0].name
        if any(ir.convenience.get_const_tensor(v) is None for v in (mean, var)):
            notes.append(f"batch normalisation {name!r} stays frozen: its statistics are computed")
            continue
        if used[mean.name] > 1 or used[var.name] > 1:
            notes.append(
                f"batch normalisation {name!r} stays frozen: "
                "another one shares its running statistics"
            )
            continue
        _set_training(node, True)
        node.resize_outputs(3)
        for value, output in zip((mean, var), node.outputs[1:], strict=True):
            output.name = f"{value.name}/updated"
            output.dtype, output.shape = value.dtype, value.shape
            updates[value.name] = output.name
    return updates


def _set_training(node: ir.Node, training: bool) -> None:
    node.attributes["training_mode"] = ir.AttrInt64("training_mode", int(training))
    if not training and len(node.outputs) > 1:
        node.resize_outputs(1)
