"""What a pattern leaves behind: nodes that nothing reads go, with those before them that only they read."""

from __future__ import annotations

import onnx
import onnx_ir as ir

from onnxgrad.graph.patterns.matching import remove_unread


def graph(text: str) -> ir.Model:
    return ir.from_proto(
        onnx.parser.parse_model(f"""
        <ir_version: 8, opset_import: ["" : 17]>
        net (float[N] x) => (float[N] y) {{ {text} }}""")
    )


def left(model: ir.Model) -> list[str]:
    return [n.op_type for n in model.graph]


def node(model: ir.Model, op_type: str) -> ir.Node:
    return next(n for n in model.graph if n.op_type == op_type)


def test_a_chain_that_nothing_reads_goes_to_its_first_node():
    model = graph("a = Exp(x) b = Sqrt(a) c = Tanh(b) y = Relu(x)")
    remove_unread(model.graph, [node(model, "Tanh")])
    assert left(model) == ["Relu"]


def test_what_another_node_or_an_output_reads_stays():
    model = graph("a = Exp(x) b = Sqrt(a) c = Tanh(b) y = Relu(a)")
    remove_unread(model.graph, [node(model, "Tanh")])
    assert left(model) == ["Exp", "Relu"]
    remove_unread(model.graph, [node(model, "Relu"), node(model, "Exp")])
    assert left(model) == ["Exp", "Relu"]


def test_nodes_of_an_outer_graph_are_not_touched():
    model = graph("""c = Constant<value = bool {1}>() e = Exp(x)
        y = If(c) <then_branch = t () => (float[N] p) { s = Sqrt(e) q = Tanh(s) p = Relu(x) },
                   else_branch = f () => (float[N] r) { r = Neg(x) }>""")
    inner = node(model, "If").attributes["then_branch"].value
    unread = next(n for n in inner if n.op_type == "Tanh")
    remove_unread(inner, [unread])
    assert [n.op_type for n in inner] == ["Relu"]
    assert left(model) == ["Constant", "Exp", "If"]
