"""An embedding as onnxruntime's optimizer fuses it, taken apart where one of its lookups trains differently."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnxgrad.model.parts import INT64, Parts

DOMAIN = "com.microsoft"
WORDS = 2  # the input of such a node


def is_embedding(node: ir.Node) -> bool:
    """Say whether a node looks up words, positions and segments, and normalises their sum."""
    return node.op_type == "EmbedLayerNormalization" and node.domain == DOMAIN


def taken_apart(model: ir.Model, node: ir.Node) -> ir.Node:
    """Put lookups and a SkipLayerNormalization in the place of such a node; return the lookup of words.

    EmbedLayerNormalization(i, j, words, positions, segments, gamma, beta, mask, k)
      → SkipLayerNormalization(words[i], positions[k] + segments[j], gamma, beta)
    Without k, the positions are 0, 1, … A second output counts the ones of the mask.
    """
    inputs = [*node.inputs, *[None] * (9 - len(node.inputs))]
    parts = Parts(model, f"{node.name or node.outputs[0].name}/apart")
    kind, shape = inputs[WORDS].dtype, node.outputs[0].shape
    word = parts.make("Gather", "words", [inputs[WORDS], inputs[0]], kind, shape)
    whole = parts.make("Shape", "shape", [word], INT64, ir.Shape([3]))
    place = _positions(parts, inputs, whole, kind, shape)
    results = [None, None, None]
    results[0], results[2] = _normalised(parts, node, [word, place, *inputs[5:7]], kind, shape)
    if len(node.outputs) > 1 and node.outputs[1].name:
        results[1] = _counted(parts, inputs[7], whole, node.outputs[1].shape)
    for old, new in zip(node.outputs, results, strict=False):
        if new is not None and old.name:
            ir.convenience.replace_all_uses_with(old, new, replace_graph_outputs=True)
            new.name, old.name = old.name, f"{new.name}/old"
    model.graph.insert_before(node, parts.nodes)
    model.graph.remove(node, safe=True)
    return word.producer()


def _positions(parts: Parts, inputs: list, whole: ir.Value, kind, shape) -> ir.Value:
    """What is added to the words: a row for each position, and one for its segment."""
    segment_ids, positions, segments, position_ids = (inputs[i] for i in (1, 3, 4, 8))
    if position_ids is not None:
        place = parts.make("Gather", "positions", [positions, position_ids], kind)
    else:
        zero, one, two = (parts.constant(f"first_{i}", np.array([i])) for i in range(3))
        length = parts.make("Slice", "length", [whole, one, two], INT64, ir.Shape([1]))
        place = parts.make("Slice", "positions", [positions, zero, length, zero], kind)
    place = parts.make("Expand", "places", [place, whole], kind, shape)
    if segment_ids is None:
        return place
    segment = parts.make("Gather", "segments", [segments, segment_ids], kind, shape)
    return parts.make("Add", "skip", [place, segment], kind, shape)


def _normalised(
    parts: Parts, node: ir.Node, inputs: list, kind, shape
) -> tuple[ir.Value, ir.Value]:
    """The normalised sum, and the sum."""
    names = (f"{parts.base}/output", "", "", f"{parts.base}/sum")
    outputs = [ir.Value(name=n, shape=shape, type=ir.TensorType(kind)) for n in names]
    epsilon = node.attributes["epsilon"].value if "epsilon" in node.attributes else 1e-12
    own = [ir.AttrFloat32("epsilon", epsilon)]
    name = f"{parts.base}/normalisation"
    parts.nodes.append(
        ir.Node(DOMAIN, "SkipLayerNormalization", inputs, own, outputs=outputs, name=name)
    )
    return outputs[0], outputs[3]


def _counted(parts: Parts, mask: ir.Value | None, whole: ir.Value, shape) -> ir.Value:
    """How many ones each row of the mask has; 0 without one, as onnxruntime has it."""
    kind = ir.DataType.INT32
    axis = parts.constant("axis", np.array([1]))
    if mask is not None:
        return parts.make("ReduceSum", "count", [mask, axis], kind, shape, keepdims=0)
    start = parts.constant("start", np.array([0]))
    rows = parts.make("Slice", "rows", [whole, start, axis], INT64, ir.Shape([1]))
    nothing = parts.constant("nothing", np.array([0], np.int32))
    return parts.make("Expand", "count", [nothing, rows], kind, shape)
