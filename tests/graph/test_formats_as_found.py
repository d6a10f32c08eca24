"""Files that declare what is not so, files of quantisers, and files of hostile hands."""

import numpy as np
import onnx
import pytest
from graph.test_formats import model, normal, run, train
from onnx import helper

import onnxgrad
from onnxgrad.errors import OnnxGradError


def test_sizes_of_minus_one_in_an_old_opset(tmp_path):
    """Paddle's converter wrote -1 for what only the run knows; the converter of opsets counted with it."""
    made = model(
        """g (float[N,3,H,W] x) => (float[N,2] y)
           { c = Conv<strides=[2,2], pads=[1,1,1,1]>(x, w) p = MaxPool<kernel_shape=[2,2], strides=[2,2]>(c)
             s = GlobalAveragePool(p) q = Conv(s, e) z = Mul(p, q) a = GlobalAveragePool(z)
             f = Flatten(a) y = MatMul(f, v) }""",
        opset=11, w=normal(4, 3, 3, 3), e=normal(4, 4, 1, 1), v=normal(4, 2),
    )  # fmt: skip
    for value in (*made.graph.input, *made.graph.output):
        for dim in value.type.tensor_type.shape.dim:
            if dim.dim_param:
                dim.dim_value = -1
    for shape in ((2, 3, 16, 24), (1, 3, 9, 12)):
        losses, _ = train(made, {"x": normal(*shape)}, tmp_path / "tuned.onnx")
        assert losses[-1] < losses[0]


def test_a_name_that_the_run_does_not_keep_is_not_asked_of_the_targets(tmp_path):
    """Four scores of one sound, declared as [batch]: the sizes that the run gives count, and a note says so."""
    made = model(
        """g (float[N,3] x) => (float[N] y)
           { m = ReduceMean<axes=[0], keepdims=0>(x) s = MatMul(m, w) p = Clip(m, four, four)
             t = ReduceMax<keepdims=0>(p) n = Cast<to=7>(t) r = Range(zero, n, one) z = Gather(s, r) y = Tanh(z) }""",
        w=normal(3, 4), four=np.float32(4), zero=np.int64(0), one=np.int64(1),
    )  # fmt: skip
    trainer = onnxgrad.Trainer(made, loss="mse", optimizer="sgd", lr=0.1)
    x, target = normal(1, 3), np.ones(4, "f4")
    losses = [trainer.step(x, target)["loss"] for _ in range(5)]
    assert losses[-1] < losses[0]
    said = "output 'y' is declared as [N], and the run gives [4]: the run counts"
    assert said in [str(n) for n in trainer.notes]
    trainer.save(tmp_path / "tuned.onnx")
    with pytest.raises(OnnxGradError, match=r"has shape \[3\]"):
        onnxgrad.Trainer(made, loss="mse").step(x, np.ones(3, "f4"))


# ---- files of quantisers, and of hostile hands


def test_a_file_of_quantize_static_trains(tmp_path):
    """The scale of a bias has shape [1] there, and the gradient's Reshape failed."""
    from onnxruntime.quantization import (
        CalibrationDataReader,
        QuantFormat,
        QuantType,
        quantize_static,
    )

    made = model(
        """g (float[N,3,8,8] x) => (float[N,2] y)
           { h = Conv(x, w, b) r = Relu(h) p = GlobalAveragePool(r) f = Flatten(p) y = Gemm(f, v, c) }""",
        w=normal(4, 3, 3, 3), b=normal(4), v=normal(4, 2), c=normal(2),
    )  # fmt: skip
    onnx.save(made, tmp_path / "float.onnx")

    class Batches(CalibrationDataReader):
        def __init__(self):
            self.left = [{"x": normal(2, 3, 8, 8, seed=i)} for i in range(3)]

        def get_next(self):
            return self.left.pop() if self.left else None

    quantize_static(
        tmp_path / "float.onnx", tmp_path / "int8.onnx", Batches(), quant_format=QuantFormat.QDQ,
        activation_type=QuantType.QInt8, weight_type=QuantType.QInt8,
    )  # fmt: skip
    losses, _ = train(
        onnx.load(tmp_path / "int8.onnx"), {"x": normal(6, 3, 8, 8)}, tmp_path / "tuned.onnx"
    )
    assert losses[-1] < losses[0]


def nested(depth):
    """A function that calls a function, and so on; the last one multiplies."""
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("f", 1)]
    functions = []
    for i in range(depth):
        last = helper.make_node("MatMul", ["a", "w"], ["b"])
        call = helper.make_node(f"F{i + 1}", ["a", "w"], ["b"], domain="f")
        body = [call if i + 1 < depth else last]
        functions.append(helper.make_function("f", f"F{i}", ["a", "w"], ["b"], body, imports))
    made = model("g (float[N,4] x) => (float[N,2] y) { y = MatMul(x, w) }", w=normal(4, 2))
    made.graph.node[0].CopyFrom(helper.make_node("F0", ["x", "w"], ["y"], domain="f"))
    made.functions.extend(functions)
    made.opset_import.append(imports[1])
    return made


def test_functions_are_followed_to_a_depth_of_100():
    """3,000 of them ended the process with SIGSEGV; the refusal is a sentence of inspect and Trainer alike."""
    assert set(onnxgrad.Trainer(nested(100), loss="mse").get_weights()) == {"w"}
    for call in (onnxgrad.inspect, lambda m: onnxgrad.Trainer(m, loss="mse")):
        for depth in (101, 3000):
            with pytest.raises(
                OnnxGradError, match=f"call each other {depth:,} deep, and the limit is 100"
            ):
                call(nested(depth))


def test_a_file_of_quantisation_aware_training_is_written_as_it_was_trained(tmp_path):
    """Float weights behind Q and DQ, a scale for each channel: the scales were trained, and the file refused."""
    weight, last = normal(4, 3, 3, 3), normal(4, 4, 1, 1)
    made = model(
        """g (float[N,3,8,8] x) => (float[N,2] y)
           { xq = QuantizeLinear(x, xs, zero) xd = DequantizeLinear(xq, xs, zero)
             wq = QuantizeLinear<axis=0>(w, ws, zeros) wd = DequantizeLinear<axis=0>(wq, ws, zeros)
             h = Conv<pads=[1,1,1,1]>(xd, wd, b) r = Relu(h)
             rq = QuantizeLinear(r, rs, low) rd = DequantizeLinear(rq, rs, low)
             vq = QuantizeLinear<axis=0>(v, vs, zeros) vd = DequantizeLinear<axis=0>(vq, vs, zeros)
             c = Conv(rd, vd) cq = QuantizeLinear(c, cs, zero) cd = DequantizeLinear(cq, cs, zero)
             p = GlobalAveragePool(cd) f = Flatten(p) y = MatMul(f, u) }""",
        w=weight, b=normal(4), v=last, u=normal(4, 2), xs=np.float32(0.03), zero=np.int8(0),
        ws=np.abs(weight).max((1, 2, 3)) / 127, vs=np.abs(last).max((1, 2, 3)) / 127, zeros=np.zeros(4, "i1"),
        rs=np.float32(0.03), low=np.int8(-128), cs=np.float32(0.05),
    )  # fmt: skip
    x = normal(6, 3, 8, 8)
    losses, written = train(made, {"x": x}, tmp_path / "tuned.onnx", steps=6)
    assert losses[-1] < losses[0]
    assert np.square(run(written, {"x": x})[0]).mean() < losses[-1] + 1e-3
    scales = {t.name: onnx.numpy_helper.to_array(t) for t in written.graph.initializer}
    np.testing.assert_array_equal(scales["ws"], np.abs(weight).max((1, 2, 3)) / 127)


# ---- files of other exporters


def test_a_scalar_that_is_a_row_for_each_of_several(tmp_path):
    """A Squeeze without axes, traced with one row: the output is declared as [], and has a number for each row."""
    made = model(
        "g (float[N,3] x) => (float y) { m = MatMul(x, w) s = Squeeze(m) y = Sigmoid(s) }",
        w=normal(3, 1),
    )
    trainer = onnxgrad.Trainer(made, loss="mse", optimizer="sgd", lr=0.1)
    x = normal(5, 3)
    assert trainer.predict(x[:1]).shape == ()
    assert trainer.predict(x, batch_size=2).shape == (5,)
    losses = [trainer.step(x, np.ones(5, "f4"))["loss"] for _ in range(5)]
    assert losses[-1] < losses[0]
    said = "output 'y' is declared as [], and the run gives [5]: the run counts"
    assert said in [str(n) for n in trainer.notes]
    trainer.save(tmp_path / "tuned.onnx")
    np.testing.assert_allclose(
        run(str(tmp_path / "tuned.onnx"), {"x": x})[0], trainer.predict(x), 1e-6
    )


def test_inputs_of_other_lengths_are_not_cut_into_rows():
    """A state of [layers, rows, width] belongs to rows of another axis: halves of it are of no batch."""
    made = model(
        """g (float[N,3] x, float[2,N,4] h) => (float[N,4] y)
           { m = MatMul(x, w) s = ReduceSum<keepdims=0>(h, zero) y = Add(m, s) }""",
        w=normal(3, 4), zero=np.array([0]),
    )  # fmt: skip
    feeds = {"x": normal(40, 3), "h": normal(2, 40, 4)}
    trainer = onnxgrad.Trainer(made, loss="mse")
    np.testing.assert_allclose(trainer.predict(feeds), run(made, feeds)[0], 1e-5)


@pytest.mark.parametrize("opset", [12, 15])
def test_an_operator_that_onnx_does_not_have_is_named(opset):
    """tf2onnx leaves what it cannot convert as it was."""
    made = model(
        "g (float[N,3] x) => (float[N,3] y) { m = MatMul(x, w) y = Erfc(m) }",
        opset=opset, w=normal(3, 3),
    )  # fmt: skip
    said = r"node 'y' \(Erfc\) is no operator of ONNX: the exporter left it as it was"
    with pytest.raises(OnnxGradError, match=said):
        onnxgrad.inspect(made)


def test_large_weights_are_not_copied_by_the_converter_of_opsets(monkeypatch):
    """Six copies of every weight were in memory at once; an old ResNet-50 took 750 MB before its first step."""
    made = model(
        "g (float[N,200] x) => (float[N,200] y) { m = MatMul(x, w) y = Relu(m) }",
        opset=12, w=normal(200, 200),
    )  # fmt: skip
    sizes, convert = [], onnx.version_converter.convert_version

    def watched(proto, version):
        sizes.append(proto.ByteSize())
        return convert(proto, version)

    monkeypatch.setattr(onnx.version_converter, "convert_version", watched)
    weights = onnxgrad.Trainer(made, loss="mse").get_weights()
    assert 0 < max(sizes) < 1000
    np.testing.assert_array_equal(
        weights["w"], onnx.numpy_helper.to_array(made.graph.initializer[0])
    )


def test_nodes_out_of_order_train_and_are_written_as_they_came(tmp_path):
    """onnxruntime sorts them itself; its converter to float16 appends the Casts of inputs at the end."""
    made = model(
        "g (float[N,3] x) => (float[N,2] y) { p = MatMul(h, w) h = Tanh(x) y = Identity(p) }",
        w=normal(3, 2),
    )
    assert [p.name for p in onnxgrad.inspect(made).parameters if p.trainable] == ["w"]
    losses, _ = train(made, {"x": normal(4, 3)}, tmp_path / "tuned.onnx")
    assert losses[-1] < losses[0]
    written = onnx.load(tmp_path / "tuned.onnx")
    assert [n.op_type for n in written.graph.node] == ["MatMul", "Tanh", "Identity"]


def test_a_cycle_is_refused_in_a_sentence():
    made = model(
        "g (float[N,3] x) => (float[N,3] y) { a = Add(b, w) b = Tanh(a) y = Mul(a, x) }",
        w=normal(3),
    )
    for judge in (onnxgrad.inspect, lambda m: onnxgrad.Trainer(m, loss="mse")):
        with pytest.raises(ValueError, match="the model's graph has a cycle, expected an acyclic"):
            judge(made)


def test_a_gradient_of_an_old_file_is_valid():
    """Before version 4 of the format initializers are inputs, too; constants of the gradient are not."""
    made = onnx.helper.make_model(
        model("g (float[N,3] x) => (float[N,2] y) { s = Sigmoid(x) y = MatMul(s, w) }", w=normal(3, 2)).graph,
        opset_imports=[helper.make_opsetid("", 8)], ir_version=3,
    )  # fmt: skip
    made.graph.input.append(helper.make_tensor_value_info("w", onnx.TensorProto.FLOAT, [3, 2]))
    onnx.checker.check_model(made)
    onnx.checker.check_model(onnxgrad.vjp(made, wrt=["x", "w"], ops="standard"))
