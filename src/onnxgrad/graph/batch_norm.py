"""BatchNormalization in training form, which opsets before 14 say by the number of outputs.

    7 to 13   Y, mean, var, saved_mean, saved_var = BatchNormalization(X, scale, B, mean, var)
    from 14   Y, running_mean, running_var = BatchNormalization(…, training_mode=1)

In both, running = input·momentum + batch·(1 - momentum). The saved ones were for a gradient that keeps
what the forward pass computed; each runtime filled them in its own way, and nothing replaces them.
"""

from __future__ import annotations

from collections.abc import Iterable

import onnx
from onnx import helper

from onnxgrad.files.tensors import Part, graphs, nodes

MODE = "training_mode"
SINCE = 14  # the opset from which an attribute says it


def trains(node: onnx.NodeProto) -> bool:
    """Say whether a BatchNormalization uses the statistics of the batch; of any opset."""
    mode = next((a for a in node.attribute if a.name == MODE), None)
    return any(node.output[1:]) if mode is None else bool(mode.i)


def is_batch_norm(node: onnx.NodeProto) -> bool:
    """Say whether a node is ONNX's own BatchNormalization."""
    return node.op_type == "BatchNormalization" and node.domain in ("", "ai.onnx")


def modernise(model: onnx.ModelProto) -> None:
    """Give nodes in the training form of an opset before 14 the attribute and outputs of later ones.

    Raises ValueError where something reads the saved statistics.
    """
    parts = (model.graph, *model.functions)
    used = reads(parts)
    for node in nodes(*parts):
        if not is_batch_norm(node) or not any(node.output[1:]):
            continue
        who = node.name or node.output[0]
        for place, what in ((3, "saved_mean"), (4, "saved_var")):
            if len(node.output) > place and node.output[place] in used:
                raise ValueError(
                    f"node {who!r} (BatchNormalization): something reads its output {what} "
                    f"({node.output[place]!r}), which opset {SINCE} no longer has; read the running "
                    "statistics or compute them with ReduceMean"
                )
        del node.output[3:]
        node.output.extend([""] * (3 - len(node.output)))
        for place, what in ((1, "running_mean"), (2, "running_var")):
            node.output[place] = node.output[place] or f"{node.output[0]}/{what}"
        if all(a.name != MODE for a in node.attribute):
            node.attribute.append(helper.make_attribute(MODE, 1))


def to_inference(model: onnx.ModelProto) -> list[str]:
    """Switch every BatchNormalization to its running statistics; return the names of the nodes.

    Whoever reads the new running statistics then reads the old ones, which do not change any more. One that
    standardises weights, as NFNets have it, stays as it is: it has no statistics of a batch.
    """
    parts, changed = (model.graph, *model.functions), []
    used, moving = reads(parts), _follow_inputs(model.graph)
    for part in graphs(*parts):
        kept = []
        for node in part.node:
            kept.append(node)
            if not is_batch_norm(node) or (
                part is model.graph and standardises_weights(node, moving)
            ):
                continue
            if trains(node):
                changed.append(node.name or node.output[0])
            for attribute in node.attribute:
                if attribute.name == MODE:
                    attribute.i = 0
            kept += _unchanged_statistics(node, used)
            del node.output[1:]
        if len(kept) > len(part.node):
            kept = [onnx.NodeProto.FromString(n.SerializeToString()) for n in kept]
            del part.node[:]
            part.node.extend(kept)
    return changed


def standardises_weights(node: onnx.NodeProto, moving: set[str]) -> bool:
    """Whether it uses the statistics of what it reads, and that is computed from no input (`moving`)."""
    return trains(node) and node.input[0] not in moving


def _follow_inputs(graph: onnx.GraphProto) -> set[str]:
    """Every name that is an input, or computed from one; what bodies make counts as such."""
    found = {v.name for v in graph.input} - {t.name for t in graph.initializer}
    before = -1
    while len(found) > before:  # nodes may stand in any order
        before = len(found)
        for node in graph.node:
            bodies = any(a.HasField("g") or a.graphs for a in node.attribute)
            if bodies or not found.isdisjoint(node.input):
                found.update(node.output)
    return found - {""}


def _unchanged_statistics(node: onnx.NodeProto, used: set[str]) -> list[onnx.NodeProto]:
    """mean → running_mean and var → running_var, where somebody reads them; the saved ones likewise."""
    sources = [node.input[3], node.input[4], node.input[3], node.input[4]]
    return [
        helper.make_node("Identity", [old], [new], name=f"{new}/unchanged")
        for old, new in zip(sources, node.output[1:], strict=False)
        if new in used
    ]


def reads(parts: Iterable[Part]) -> set[str]:
    """Every name that some node reads or some graph gives out."""
    found: set[str] = set()
    for part in graphs(*parts):
        found.update(name for node in part.node for name in node.input)
        found.update(v if isinstance(v, str) else v.name for v in part.output)
    return found - {""}
