"""Which weights `trainable` means: names, patterns, what is left out, the last layer; and what it cannot mean."""

from __future__ import annotations

import math

import onnx
import pytest

from onnxgrad.model.trainable import TrainableModel


def model(body: str, names: dict[str, tuple[int, ...]]) -> TrainableModel:
    made = onnx.parser.parse_model(f"""<ir_version: 8, opset_import: ["" : 17]>
        net (float[N, 4] x) => (float[N, 2] y) {{ {body} }}""")
    for i, (name, shape) in enumerate(names.items()):
        numbers = [((7 * k + 3 * i) % 11) / 10 - 0.5 for k in range(max(1, math.prod(shape)))]
        made.graph.initializer.append(
            onnx.helper.make_tensor(name, onnx.TensorProto.FLOAT, shape, numbers)
        )
    return TrainableModel(made)


SHAPES = {"w1": (4, 4), "b1": (4,), "w2": (4, 4), "out_w": (4, 2), "out_b": (2,), "unused": (3,)}
BODY = "a = Gemm(x, w1, b1) h = Tanh(a) c = MatMul(h, w2) d = Relu(c) e = MatMul(d, out_w) y = Add(e, out_b)"


@pytest.fixture(scope="module")
def net() -> TrainableModel:
    return model(BODY, SHAPES)


MEANT = [
    ("all", ["w1", "b1", "w2", "out_w", "out_b"]),
    ("head", ["out_w", "out_b"]),
    ("w2", ["w2"]),
    ("w*", ["w1", "w2"]),
    ("w[12]", ["w1", "w2"]),
    ("(w1|b1)", ["w1", "b1"]),
    (["out_b", "w1"], ["w1", "out_b"]),
    (["head", "w1"], ["w1", "out_w", "out_b"]),
    (["all", "-w1"], ["b1", "w2", "out_w", "out_b"]),
    (["all", "-head", "-b*"], ["w1", "w2"]),
    (["all", "-w*", "w2"], ["b1", "w2", "out_w", "out_b"]),
]


@pytest.mark.parametrize(("wanted", "meant"), MEANT, ids=[str(m[0]) for m in MEANT])
def test_what_is_meant(wanted, meant, net):
    assert net.select(wanted) == meant


REFUSED = [
    ("w9", "trainable names 'w9', which matches none of the model's 5 weights; the nearest are 'w"),
    (
        "[",
        "trainable names '[', which matches none of the model's 5 weights; the nearest are 'w1', 'b1', 'w2'",
    ),
    ("unused", "trainable names 'unused', which cannot be trained: nothing uses it"),
    ([3], "trainable holds a int, expected names"),
    ([], "trainable is empty, expected at least one name"),
    (["w1", "-w1"], "trainable is empty: nothing is left after -w1, expected at least one name"),
    (["all", "-nothing"], "trainable names 'nothing', which matches none"),
]


@pytest.mark.parametrize(("wanted", "said"), REFUSED, ids=[r[1] for r in REFUSED])
def test_what_cannot_be_meant(wanted, said, net):
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        net.select(wanted)
    assert str(caught.value).startswith(said)


def test_a_model_without_weights_says_so():
    with pytest.raises(ValueError, match="the model has no weights that its loss depends on"):
        model("y = Tanh(x)", {}).select("all")


def test_the_last_layer_ends_at_the_first_with_weights():
    """What stands behind it belongs to it; a product of two activations is no layer."""
    body = "a = MatMul(x, w1) b = Mul(a, scale) c = Transpose <perm = [1, 0]> (b) d = MatMul(c, b) y = Mul(d, gain)"
    net = model(body, {"w1": (4, 4), "scale": (4,), "gain": (4,)})
    assert net.select("head") == ["w1", "scale", "gain"]
    turned = model(
        "t = Transpose(w) a = MatMul(x, w1) y = MatMul(a, t)", {"w1": (4, 4), "w": (2, 4)}
    )
    assert turned.select("head") == ["w"]
