"""What an export did to a model, in whole sentences: when it is said, and when just not."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from onnxgrad.inspection.notes import notes
from onnxgrad.model.doubts import doubts
from onnxgrad.model.origin import FOLDED, KIND
from onnxgrad.model.roles import Tensor


def model(
    body: str, weights: str = "", inputs: str = "float[2, 8] x", opset: int = 17, producer: str = ""
) -> ir.Model:
    """A model in ONNX's own text; its output is y."""
    text = f"""<ir_version: 8, opset_import: ["" : {opset}]>
        net ({inputs}) => (float y) <{weights}> {{ {body} }}"""
    proto = onnx.parser.parse_model(text)
    fill(proto.graph)
    for node in proto.graph.node:
        for attribute in node.attribute:
            fill(attribute.g)
    proto.producer_name = producer
    return ir.from_proto(proto)


def fill(graph: onnx.GraphProto) -> None:
    """What is declared between <> are weights: zeros."""
    for info in graph.value_info:
        kind = info.type.tensor_type
        array = np.zeros(
            [d.dim_value for d in kind.shape.dim],
            onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type),
        )
        graph.initializer.append(onnx.numpy_helper.from_array(array, info.name))


def said(
    made: ir.Model, weights: set[str] | None = None, prepared: ir.Model | None = None
) -> dict[str, str]:
    names = set(made.graph.initializers) if weights is None else weights
    tensors = [Tensor(n, "weight", "", (8,), "float") for n in names]
    found = [*notes(made, prepared or made), *doubts(prepared or made, tensors)]
    return {note.kind: note.text for note in found}


def test_nothing_is_said_of_a_plain_model_or_of_none():
    assert said(model("y = MatMul(x, w)", "float[8, 2] w")) == {}
    assert said(model("", inputs="float y")) == {}


def stored(count: int) -> str:
    return ", ".join(f"int8[8, 8] q{i}, float[8] s{i}, int8[8] z{i}" for i in range(count))


def test_integer_weights():
    one = model("w = DequantizeLinear <axis = 1> (q0, s0, z0) y = MatMul(x, w)", stored(1))
    end = "of an integer type (first: 'q0') and cannot be trained; start from the float model and quantize afterwards"
    assert said(one) == {"integer weights": f"1 weight is {end}"}
    body = "w = DequantizeLinear <axis = 1> (q0, s0, z0) h = MatMul(x, w) v = DequantizeLinear <axis = 1> (q1, s1, z1)"
    assert said(model(f"{body} y = MatMul(h, v)", stored(2))) == {
        "integer weights": f"2 weights are {end}"
    }
    trained_through = model("y = MatMul(x, q0)", "float[8, 8] q1")
    assert said(one, prepared=trained_through) == {}
    single = model(
        "w = DequantizeLinear (q, s) y = MatMul(x, w)", "int8[1, 1] q, float s", "float[2, 1] x"
    )
    assert said(single) == {}, "a single number is a setting"


BRANCH = "y = If {name} (c) <then_branch = t () => (float[2, 8] a) <{weights}> {{ {inner} }}, " \
         "else_branch = e () => (float[2, 8] b) {{ b = Relu(x) }}>"  # fmt: skip
LARGE = "k = Constant <value = float[64] {" + ", ".join(["1"] * 64) + "}> ()"


@pytest.mark.parametrize(("name", "shown"), [("", "If"), ("choose", "choose")])
def test_weights_in_bodies(name, shown):
    inner = f"{LARGE} h = Reshape(k, s) g = Slice(h, i, j) a = Mul(g, v)"
    made = model(
        BRANCH.format(name="", weights="float[2, 8] v", inner=inner), "int64[2] s, int64[2] i, int64[2] j",
        "bool c, float[2, 8] x",
    )  # fmt: skip
    next(n for n in made.graph if n.op_type == "If").name = name
    assert said(made)["weights in bodies"] == (
        f"2 weights lie inside the bodies of control flow (first: node {shown!r})"
    )


def test_one_weight_in_a_body_and_none():
    one = BRANCH.format(name="", weights="float[8] v", inner="a = Mul(x, v)")
    found = said(model(one, inputs="bool c, float[2, 8] x"))["weights in bodies"]
    assert found.startswith("1 weight lies inside")
    none = BRANCH.format(name="", weights="", inner="a = Tanh(x)")
    assert said(model(none, inputs="bool c, float[2, 8] x")) == {}
    setting = BRANCH.format(name="", weights="float[1] one", inner="a = Sub(one, x)")
    assert said(model(setting, inputs="bool c, float[2, 8] x")) == {}


def convolutions(count: int, bare: int = 0, between: str = "") -> ir.Model:
    parts, names = [], []
    for i in range(count):
        bias = "" if i < bare else f", b{i}"
        parts.append(f"h{i + 1} = Conv(h{i}, w{i}{bias})")
        names += [f"float[1, 1, 1, 1] w{i}", *([] if i < bare else [f"float[1] b{i}"])]
    body = f"h0 = Relu(x) {' '.join(parts)} {between or f'y = Relu(h{count})'}"
    return model(body, ", ".join(names), "float[1, 1, 4, 4] x")


def test_folded_batch_norm():
    assert said(convolutions(4)) == {
        "folded batch norm": "every convolution has a bias and there is no BatchNormalization: it was probably folded "
        "into the weights, which train, but with a smaller learning rate"
    }
    assert said(convolutions(3)) == {}
    assert said(convolutions(4, bare=1)) == {}
    assert said(convolutions(4, between="y = BatchNormalization(h4, b0, b1, b2, b3)")) == {}


def test_perhaps_buffers():
    body = "a = Mul(x, anchors) b = Mul(a, weight) c = Mul(b, val_3) d = Mul(c, grid) e = Mul(d, p) y = Mul(e, q)"
    names = ["anchors", "weight", "val_3", "grid", "p", "q"]
    made = model(body, ", ".join(f"float[8] {n}" for n in names), producer="pytorch")
    start = "the exporter does not tell parameters from buffers:"
    end = "and --trainable all,-anchors leaves 'anchors' out"
    assert said(made) == {"perhaps buffers": f"{start} 'anchors', 'grid', 'p' … train, {end}"}
    assert said(made, {"anchors", "weight", "val_3"}) == {
        "perhaps buffers": f"{start} 'anchors' trains, {end}"
    }
    assert (
        said(made, {"anchors", "grid", "p"})["perhaps buffers"]
        == f"{start} 'anchors', 'grid', 'p' train, {end}"
    )
    assert said(made, {"weight", "val_3"}) == {}
    made.producer_name = "another"
    assert said(made) == {}


def test_computed_weights_and_what_the_newer_exporter_tells():
    made = model("a = Mul(x, mul) b = Mul(a, div) y = Mul(b, w)", "float[8] mul, float[8] div, float[8] w",
                 producer="pytorch")  # fmt: skip
    values = made.graph.initializers
    values["w"].metadata_props[KIND] = "InputKind.PARAMETER"
    values["mul"].metadata_props[FOLDED] = "['div', 'conv.original1', 'val_0']"
    text = "computed by the exporter (first: 'mul' from 'conv.original1', by div): what trains is the result, " \
           "without the formula"  # fmt: skip
    assert said(made) == {"computed weights": f"1 tensor was {text}"}
    values["div"].metadata_props[FOLDED] = "['exp', 'table']"
    found = said(made)
    assert found["computed weights"] == f"2 tensors were {text}"
    assert found["perhaps buffers"].startswith(
        "the exporter does not tell parameters from buffers: 'div' trains"
    )
    assert said(made, {"div"})["computed weights"].startswith(
        "1 tensor was computed by the exporter (first: 'div'"
    )
    assert said(made, {"w"}) == {}, "of what is trained"


def test_dropout_removed():
    attention = "s = MatMul(x, w) p = Softmax(s) h = MatMul(p, w)"
    text = "there is no Dropout: an export for inference removes it; the trainer can put it back with dropout=p"
    for last in ("y = LayerNormalization(h, g)", "y = Erf(h)"):
        assert said(model(f"{attention} {last}", "float[8, 8] w, float[8] g")) == {
            "dropout removed": text
        }
    for body in (f"{attention} y = Relu(h)", f"{attention} d = Erf(h) y = Dropout(d)", "h = MatMul(x, w) y = Erf(h)",
                 "h = Softmax(x) y = Erf(h)"):  # fmt: skip
        assert said(model(body, "float[8, 8] w")) == {}, body


def constant(name: str, size: int) -> str:
    return f"{name} = Constant <value = float[{size}] {{{', '.join(['1'] * size)}}}> ()"


def test_weights_in_constants():
    body = f"{constant('k', 64)} {constant('small', 63)} a = Mul(x, k) y = Mul(a, small)"
    text = "kept in Constant nodes (first: 'k'); they train as well"
    assert said(model(body)) == {"weights in constants": f"1 weight is {text}"}
    assert said(model(body.replace("63", "65").replace("small = Constant", f"{constant('l', 65)} small = Relu(l) u = "
                                                                           "Constant"))) == {
        "weights in constants": f"3 weights are {text}"
    }  # fmt: skip
    assert said(model(body, producer="pytorch")) == {}, "PyTorch keeps no parameter there"


@pytest.mark.parametrize("opset", [12, 13])
def test_old_opsets(opset):
    text = "opset 12 is old; the gradient is built on a converted copy"
    assert said(model("y = Relu(x)", opset=opset)) == ({"old opset": text} if opset == 12 else {})


def test_operators_that_only_newer_runtimes_have():
    body = "a = RMSNormalization(x, w) b = Attention(a, a, a) y = Relu(b)"
    assert said(model(body, "float[8] w", opset=23)) == {
        "new operators": "Attention, RMSNormalization: only newer releases of onnxruntime have them"
    }
    assert (
        said(
            model(
                "a = GroupNormalization <num_groups = 2> (x, w, w) y = Round(a)",
                "float[8] w",
                opset=21,
            )
        )
        == {}
    )
    assert said(model("y = Round(x)", opset=22)) == {}, "an old operator in a new version"
