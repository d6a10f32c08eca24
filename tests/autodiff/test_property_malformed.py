"""Damaged models: the builder gives a gradient, or one error that says what is wrong; it never crashes or hangs."""

from __future__ import annotations

import time

import numpy as np
import onnx
from autodiff import test_bodies, test_models, test_repeats
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from onnxgrad.autodiff import vjp
from onnxgrad.errors import OnnxGradError

SECONDS = 20
OPERATORS = (
    "Conv",
    "Gemm",
    "Reshape",
    "Nope",
    "MaxPool",
    "LSTM",
    "Concat",
    "Slice",
    "Gather",
    "If",
    "Loop",
    "Scan",
)
SOUND = [make()[0] for make in test_models.MODELS.values()]
SOUND += [
    test_repeats.parse(test_repeats.LOOP),
    test_repeats.parse(test_repeats.SCAN.replace("LAYOUT", "")),
]
SOUND += [onnx.parser.parse_model(text) for text in (test_bodies.BRANCHES, test_bodies.NESTED)]


def graphs(graph):
    """A graph and all bodies in it."""
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.type == attribute.GRAPH:
                yield from graphs(attribute.g)


def damage(model, rng):
    """One random change, which may even leave the model sound."""
    graph = rng.choice(list(graphs(model.graph)))
    if not graph.node:
        return
    node = graph.node[rng.integers(len(graph.node))]
    other = graph.node[rng.integers(len(graph.node))]
    names = [*other.output, "nope", ""]
    changes = [
        lambda: graph.node.remove(node),
        lambda: node.attribute and node.attribute.pop(int(rng.integers(len(node.attribute)))),
        lambda: (
            node.input
            and node.input.__setitem__(int(rng.integers(len(node.input))), str(rng.choice(names)))
        ),
        lambda: setattr(node, "op_type", str(rng.choice(OPERATORS))),
        lambda: node.input and node.input.pop(),
        lambda: node.input.append(str(rng.choice(names))),
        lambda: (
            graph.initializer and graph.initializer.pop(int(rng.integers(len(graph.initializer))))
        ),
        lambda: node.output.append(f"extra{rng.integers(9)}"),
        lambda: node.output and node.output.pop(),
        lambda: graph.input and graph.input.pop(),
        lambda: graph.output and graph.output.pop(),
        lambda: graph.input and graph.input[0].ClearField("type"),
        lambda: setattr(model.opset_import[0], "version", int(rng.integers(0, 40))),
    ]
    changes[rng.integers(len(changes))]()


@settings(suppress_health_check=list(HealthCheck))
@given(st.integers(0, 2**32 - 1))
def test_property_damaged_models_are_refused_in_words(seed):
    rng = np.random.default_rng(seed)
    model = onnx.ModelProto()
    model.CopyFrom(SOUND[rng.integers(len(SOUND))])
    for _ in range(rng.integers(1, 4)):
        damage(model, rng)
    started = time.process_time()
    try:
        vjp(model, ops=str(rng.choice(["fused", "standard"])))
    except (OnnxGradError, ValueError) as error:
        text = str(error)
        assert len(text) > 20, text
        if "its rule failed" not in text:  # which names the node, and onnx.checker
            assert "zip()" not in text, text
            assert "unpack" not in text, text
    assert time.process_time() - started < SECONDS
