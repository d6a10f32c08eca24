"""Graphs that never end, nest without end, or ask for memory that no machine has."""

from __future__ import annotations

from pathlib import Path

import onnx
from attack_cases import case
from onnx import TensorProto, helper

from build import net, train, write


@case("cycle", (2, 3))
def cycle(box):
    """a graph with a cycle"""
    return ["inspect", write(box, net("a = Add(b, x)  b = Add(a, x)  y = MatMul(a, w)"))]


@case("calls itself")
def self_recursion(box):
    """a function that calls itself"""
    more = '<domain: "mine", opset_import: ["" : 17, "mine" : 1]> f (a) => (b) { b = mine.f(a) }'
    return ["inspect", write(box, net("h = mine.f(x)  y = MatMul(h, w)", more))]


def chain(length: int, calls: int) -> onnx.ModelProto:
    """Functions that call the next one, each `calls` times."""
    model = net("h = mine.f0(x)  y = MatMul(h, w)")
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("mine", 1)]
    for i in range(length):
        last = i == length - 1
        nodes = [
            helper.make_node("Identity" if last else f"f{i + 1}", [f"a{c}"], [f"a{c + 1}"],
                             domain="" if last else "mine")
            for c in range(calls)
        ]  # fmt: skip
        model.functions.append(
            helper.make_function("mine", f"f{i}", ["a0"], [f"a{calls}"], nodes, opsets)
        )
    return model


@case("3,000 deep")
def function_chain(box):
    """3,000 functions, each calling the next: kills onnxruntime 1.31"""
    return train(box, write(box, chain(3000, 1)))


@case("nodes, and the limit is")
def function_bomb(box):
    """30 functions, each calling the next twice: 2^30 nodes"""
    return train(box, write(box, chain(30, 2)))


@case("holds no ONNX model", (2, 3))
def deep_branches(box):
    """If inside If, 1,000 deep"""
    graph = helper.make_graph(
        [helper.make_node("Identity", ["x"], ["o"])], "g", [],
        [helper.make_tensor_value_info("o", TensorProto.FLOAT, None)],
    )  # fmt: skip
    inner = graph.SerializeToString()
    for _ in range(1000):  # by hand: the library would not nest so deep either
        attribute = b"\x0a\x0bthen_branch" + _field(6, inner) + b"\xa0\x01\x05"
        node = _field(2, b"o") + _field(4, b"If") + _field(5, attribute)
        inner = _field(1, node)
    model = _varint_field(1, 8) + _field(7, inner)
    (box / "m.onnx").write_bytes(model)
    return ["inspect", "m.onnx"]


def _varint(number: int) -> bytes:
    out = b""
    while True:
        number, low = number >> 7, number & 127
        out += bytes([low | (128 if number else 0)])
        if not number:
            return out


def _varint_field(tag: int, number: int) -> bytes:
    return _varint(tag << 3) + _varint(number)


def _field(tag: int, content: bytes) -> bytes:
    return _varint(tag << 3 | 2) + _varint(len(content)) + content


def out_of_nothing(box: Path, body: str) -> str:
    return write(box, net(body + "  s = ReduceSum(big)  z = Add(x, s)  y = MatMul(z, w)"))


SHAPE = "shape = Constant<value = int64[1] {8589934592}>()  "


@case("8,589,934,592 elements")
def huge_constant_of_shape(box):
    """ConstantOfShape to 2^33 elements"""
    return ["inspect", out_of_nothing(box, SHAPE + "big = ConstantOfShape(shape)")]


@case("8,589,934,592 elements")
def huge_expand(box):
    """Expand to 2^33 elements"""
    body = SHAPE + "f = Constant<value = float[1] {1}>()  big = Expand(f, shape)"
    return train(box, out_of_nothing(box, body))


@case("8,589,934,592 elements")
def huge_tile(box):
    """Tile to 2^33 elements"""
    body = SHAPE + "f = Constant<value = float[1] {1}>()  big = Tile(f, shape)"
    return ["check", out_of_nothing(box, body)]


@case("8,589,934,592 elements")
def huge_range(box):
    """Range to 2^33 elements"""
    body = """a = Constant<value = float {0}>()  b = Constant<value = float {8589934592}>()
              c = Constant<value = float {1}>()  big = Range(a, b, c)"""
    return train(box, out_of_nothing(box, body))


@case("268,435,456 elements")
def doubled_list(box):
    """a list of integers that Concat doubles 33 times, which onnx computes along with the shapes"""
    joins = [f"c{i + 1} = Concat<axis = 0>(c{i}, c{i})" for i in range(33)]
    body = "c0 = Identity(one)  " + "  ".join(joins) + "  big = Cast<to = 1>(c33)"
    return ["inspect", out_of_nothing(box, body)]


@case("trips, and the limit is")
def endless_loop(box):
    """a Loop of 2^62 trips"""
    body = """trips = Constant<value = int64 {4611686018427387904}>()
        yes = Constant<value = bool {1}>()
        h = Loop(trips, yes, x) <body = b (int64 i, bool c, float[N, 3] a) => (bool c2, float[N, 3] a2)
            { c2 = Identity(c)  a2 = Add(a, a) }>
        y = MatMul(h, w)"""
    name = write(box, net(body))
    return ["predict", name, "--data", train(box, name)[3], "-o", "p.csv", "--target", "y"]


@case("m.onnx", (2, 3))
def rank_of_a_hundred(box):
    """a tensor of 100 axes in front of Gather"""
    dims = ",".join(["1"] * 100)
    body = f"""shape = Constant<value = int64[100] {{{dims}}}>()
        m = MatMul(x, w)  s = ReduceSum(m)  r = Reshape(s, shape)
        i = Constant<value = int64[1] {{0}}>()  g = Gather<axis = 50>(r, i)
        t = ReduceSum<keepdims = 0>(g)  y = Add(m, t)"""
    return train(box, write(box, net(body)))


@case("m.onnx", (2, 3))
def opset_zero(box):
    """opset 0"""
    model = net()
    model.opset_import[0].version = 0
    return train(box, write(box, model))


@case("m.onnx", (2, 3))
def opset_of_the_far_future(box):
    """opset 2^62"""
    model = net()
    model.opset_import[0].version = 2**62
    return train(box, write(box, model))


@case("nodes, and the limit is")
def many_nodes(box):
    """300,000 nodes"""
    model = net()
    node = model.graph.node.pop()
    for i in range(300_000):
        model.graph.node.add(
            op_type="Relu", input=["x" if not i else f"h{i}"], output=[f"h{i + 1}"]
        )
    node.input[0] = "h300000"
    model.graph.node.append(node)
    return ["inspect", write(box, model)]


@case("10,000,000 characters")
def long_name(box):
    """a name of 10 MB"""
    model = net()
    model.graph.node[0].name = "n" * 10_000_000
    return ["inspect", write(box, model)]


@case("no ONNX model")
def half_a_file(box):
    """a file that ends in the middle"""
    data = net().SerializeToString()
    (box / "m.onnx").write_bytes(data[: len(data) // 2])
    return ["train", "m.onnx", "--data", "d.npz", "-o", "out.onnx"]


@case("m.onnx")
def no_model_at_all(box):
    """a text under the name of a model"""
    (box / "m.onnx").write_bytes(b"#!/bin/sh\necho hello\n")
    return ["inspect", "m.onnx"]


@case("is a device, expected an ONNX file")
def device_as_model(box):
    """/dev/zero as the model"""
    return ["inspect", "/dev/zero"]


@case("m.onnx", (2, 3))
def gather_out_of_range(box):
    """an index that no row has"""
    body = """i = Constant<value = int64[1] {1000000000}>()  g = Gather(w, i)
              s = ReduceSum(g)  m = MatMul(x, w)  y = Add(m, s)"""
    return train(box, write(box, net(body)))


TEXT_HEAD = '<ir_version: 8, opset_import: ["" : 17]> net '


@case("brackets inside each other")
def deep_text(box):
    """ONNX's text form with If inside If, 30,000 deep: ends onnx's parser"""
    inner = "y = If(x) <then_branch = g () => (y) { " * 30_000
    (box / "m.onnxtxt").write_text(f"{TEXT_HEAD}(float[N] x) => (float[N] y) {{ {inner}")
    return ["inspect", "m.onnxtxt"]


@case("brackets inside each other")
def deep_type(box):
    """ONNX's text form with lists of lists of lists, 200,000 deep"""
    (box / "m.onnxtxt").write_text(f"{TEXT_HEAD}({'seq(' * 200_000}float x) => (float[N] y) {{ }}")
    return ["inspect", "m.onnxtxt"]


@case("nodes, and the limit is")
def many_outputs(box):
    """a node of 300,000 outputs"""
    model = net()
    model.graph.node[0].output.extend(f"o{i}" for i in range(300_000))
    return ["inspect", write(box, model)]


@case("evil", (2, 3))
def terminal_escapes(box):
    """a name that would clear the screen"""
    model = net("a = MatMul(x, w)  y = Unknown(a)")
    model.graph.node[1].name = "\x1b[2J\x1b]0;owned\x07evil"
    return train(box, write(box, model))
