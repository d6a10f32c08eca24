"""The row of zeros that stands for padding: where it is seen, and what the graph then says of itself."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest

from onnxgrad import Trainer
from onnxgrad.graph import load
from onnxgrad.model import origin
from onnxgrad.model.padding import Padding

LOOKUP = "y = Gather(w, i)"


def model(body: str = LOOKUP, zeros: tuple[int, ...] = (1,), rows: int = 4) -> onnx.ModelProto:
    proto = onnx.parser.parse_model(f"""
        <ir_version: 8, opset_import: ["" : 17]>
        net (int64[2, 3] i) => (float[A, B, C] y) {{ {body} }}""")
    table = np.arange(1, 2 * rows + 1, dtype=np.float32).reshape(rows, 2)
    table[list(zeros)] = 0
    proto.graph.initializer.append(onnx.numpy_helper.from_array(table, "w"))
    return proto


def test_what_is_written_has_the_shapes_that_onnx_infers():
    graph = load(model())
    Padding().apply(graph)
    told = {v.name: tuple(v.shape) for n in graph.graph for v in n.outputs if v.shape is not None}
    proto = ir.to_proto(graph)
    del proto.graph.value_info[:]
    inferred = {
        v.name: tuple(d.dim_value for d in v.type.tensor_type.shape.dim)
        for v in onnx.shape_inference.infer_shapes(proto, strict_mode=True).graph.value_info
    }
    assert {n.op_type for n in graph.graph} == {
        "Gather", "Cast", "Mul", "Floor", "Div", "Equal", "Unsqueeze", "Where",
    }  # fmt: skip
    assert [told[name] for name in inferred if name in told] == [
        inferred[name] for name in inferred if name in told
    ]
    assert (2, 3, 1) in told.values()


@pytest.mark.parametrize(
    ("proto", "rows"),
    [
        (model(), {"w": 1}),
        (model(zeros=(0,)), {"w": 0}),
        (model(zeros=()), {}),
        (model(zeros=(0, 2)), {}),  # which of them?
        (model(zeros=(1,), rows=3), {"w": 1}),
        (model(zeros=(1,), rows=2), {}),  # half of the table is no padding
        (model("y = Gather<axis = 1>(w, i)"), {}),
        (model("g = Gather(w, i) s = ReduceSum<keepdims = 0>(w) y = Add(g, s)"), {"w": 1}),
    ],
)
def test_which_row_is_taken_for_padding(proto, rows):
    padding = Padding()
    padding.apply(load(proto))
    assert {name: found.row for name, found in padding.rows.items()} == rows
    assert [(n.subject, f"row {rows[n.subject]} of" in n.text) for n in padding.describe()] == [
        (name, True) for name in rows
    ]


def called(proto: onnx.ModelProto, arguments: str) -> onnx.ModelProto:
    """Note the call of the newer exporter beside the lookup."""
    call = f"call_function[target=torch.ops.aten.embedding.default](args = ({arguments}), kwargs = {{}})"
    proto.graph.node[0].metadata_props.add(key=origin.CALL, value=f"%e = {call}")
    return proto


@pytest.mark.parametrize(
    ("proto", "rows"),
    [
        (called(model(zeros=()), "%p_w, %i, 2"), {"w": 2}),
        (called(model(zeros=(1,)), "%p_w, %i"), {}),  # zeros, but no padding
        (called(model(zeros=()), "%p_w, %i, 9"), {}),
    ],
    ids=["a row that is not zero", "a row of zeros", "a row that the table lacks"],
)
def test_the_newer_exporter_tells_the_row(proto, rows):
    padding = Padding()
    padding.apply(load(proto))
    assert {name: found.row for name, found in padding.rows.items()} == rows
    assert all("as the exporter notes" in note.text for note in padding.describe())


def test_a_head_with_the_same_matrix_trains_the_row_and_lookups_do_not():
    head = "g = Gather(w, i) t = Transpose(w) y = MatMul(g, t)"
    trainer = Trainer(model(head), loss="mse", optimizer="sgd", lr=0.1)
    plain = Trainer(called(model(head), "%p_w, %i"), loss="mse", optimizer="sgd", lr=0.1)
    ids, target = np.array([[1, 2, 1], [3, 1, 2]]), np.ones((2, 3, 4), np.float32)
    w = np.arange(1, 9, dtype=np.float64).reshape(4, 2)
    w[1] = 0
    for _ in range(3):
        w = w - 0.1 * _gradient_of_head(w, ids, target)
        trainer.step(ids, target)
        plain.step(ids, target)
    np.testing.assert_allclose(trainer.get_weights()["w"], w, rtol=1e-4)
    assert np.abs(w[1]).max() > 0
    assert not np.allclose(plain.get_weights()["w"][1], w[1], rtol=1e-2)


def _gradient_of_head(w: np.ndarray, ids: np.ndarray, target: np.ndarray) -> np.ndarray:
    """Of the mean of (g·wᵀ - target)², g = w[ids]; lookups of row 1 count for nothing."""
    g = w[ids]
    error = 2 * (g @ w.T - target) / target.size
    found = np.einsum("nsv,nsd->vd", error, g)
    looked_up = error @ w
    np.add.at(found, ids[ids != 1], looked_up[ids != 1])
    return found


def fused(inputs: str, outputs: str, more: str) -> onnx.ModelProto:
    """A BERT's embedding as onnxruntime's optimizer writes it; word 0 is all zeros."""
    body = f"{outputs} = com.microsoft.EmbedLayerNormalization<epsilon = 0.01>({inputs})"
    proto = onnx.parser.parse_model(f"""
        <ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1]>
        net (int32[N, T] i, int32[N, T] j) => (float[N, T, 4] y) {{ {body} {more or "y = Identity(e)"} }}""")
    rng = np.random.default_rng(3)
    shapes = {"w": (6, 4), "p": (8, 4), "s": (2, 4), "g": (4,), "b": (4,)}
    for name, shape in shapes.items():
        array = rng.normal(size=shape).astype(np.float32)
        if name == "w":
            array[0] = 0
        proto.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    return proto


_I = np.array([[0, 3, 5], [2, 0, 0]], np.int32)
_J = np.array([[0, 1, 1], [1, 1, 0]], np.int32)


@pytest.mark.parametrize(
    ("inputs", "outputs", "more"),
    [
        ("i, j, w, p, s, g, b", "e, none", ""),
        ("i, , w, p, , g, b", "e, none", ""),
        ("i, j, w, p, s, g, b, , j", "e, none, sum", "t = Tanh(sum) y = Mul(t, e)"),
        ("i, j, w, p, s, g, b, j", "e, n", "f = Cast<to = 1>(n) one = Constant<value_ints = [1, 2]>() "
         "u = Unsqueeze(f, one) y = Mul(u, e)"),
        ("i, j, w, p, s, g, b", "e, n", "f = Cast<to = 1>(n) one = Constant<value_ints = [1, 2]>() "
         "u = Unsqueeze(f, one) y = Add(u, e)"),
    ],
)  # fmt: skip
def test_padding_inside_a_fused_embedding_stays_zero(inputs, outputs, more, tmp_path):
    """onnxruntime's optimizer hides the lookup in EmbedLayerNormalization; PyTorch's row has no gradient."""
    proto = fused(inputs, outputs, more)
    feeds = {"i": _I} | (
        {"j": _J} if "j" in inputs.replace("i, j", "", 1) or "i, j" in inputs else {}
    )
    if "j" not in feeds:
        del proto.graph.input[1]
    trainer = Trainer(proto, loss="mse", optimizer="sgd", lr=0.1)
    assert "padding" in [n.kind for n in trainer.notes]
    plain = onnxruntime.InferenceSession(proto.SerializeToString()).run(None, feeds)[0]
    np.testing.assert_allclose(trainer.predict(feeds), plain, atol=1e-5)
    target = np.zeros_like(plain)
    found = trainer.gradients(feeds, target)["w"]
    assert not found[0].any()
    free = fused(inputs, outputs, more)
    del free.graph.input[len(feeds) :]
    words = next(t for t in free.graph.initializer if t.name == "w")
    array = onnx.numpy_helper.to_array(words).copy()
    array[1] = 0  # two rows of zeros: neither is padding
    words.CopyFrom(onnx.numpy_helper.from_array(array, "w"))
    whole = Trainer(free, loss="mse").gradients(feeds, target)["w"]
    assert whole[0].any()
    np.testing.assert_allclose(found[1:], whole[1:], rtol=1e-4, atol=1e-6)
    trainer.step(feeds, target)
    trainer.save(tmp_path / "tuned.onnx")
    written = onnx.load(tmp_path / "tuned.onnx")
    assert [n.op_type for n in written.graph.node] == [n.op_type for n in proto.graph.node]
