"""Files as people have them: what exporters, optimisers and converters write, trained and written back."""

import re

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper, parser

import onnxgrad
from onnxgrad.cli import main
from onnxgrad.errors import GradientError, ModelError, OnnxGradError
from onnxgrad.graph import load

CPU = ["CPUExecutionProvider"]


def normal(*shape, seed=0):
    return (np.random.default_rng([seed, *shape]).standard_normal(shape) * 0.5).astype("f4")


def model(text, opset=17, domains=(), **tensors):
    """Parse a graph; keywords are its initializers."""
    imports = ", ".join(f'"{d}": {v}' for d, v in (("", opset), *domains))
    made = parser.parse_model(f"<ir_version: 8, opset_import: [{imports}]> {text}")
    made.graph.initializer.extend(
        numpy_helper.from_array(np.asarray(v), k) for k, v in tensors.items()
    )
    return made


def run(made, feed):
    data = made if isinstance(made, str) else made.SerializeToString()
    return onnxruntime.InferenceSession(data, providers=CPU).run(None, feed)


def train(made, feed, path, output="y", steps=3):
    """Train on one batch towards zero, write the model; return the losses and the written file."""
    trainer = onnxgrad.Trainer(made, loss={output: "mse"}, optimizer="sgd", lr=0.05)
    names = [v.name for v in made.graph.output]
    target = np.zeros_like(run(made, feed)[names.index(output)])
    batch = {**feed, trainer.target_names[0]: target}
    losses = [trainer.step(batch)["loss"] for _ in range(steps)]
    trainer.save(path)
    return losses, onnx.load(path)


def test_a_scalar_input(tmp_path):
    made = model(
        """g (float[N,4] x, int64 rate) => (float[N,3] y)
           { a = MatMul(x, w) c = Equal(rate, k) d = Cast<to=1>(c) b = Add(a, d) y = Tanh(b) }""",
        w=normal(4, 3), k=np.int64(16000),
    )  # fmt: skip
    feed = {"x": normal(5, 4), "rate": np.array(16000)}
    losses, written = train(made, feed, tmp_path / "tuned.onnx")
    assert losses[-1] < losses[0]
    assert np.isfinite(run(written, feed)[0]).all()


# ---- onnxruntime's optimiser leaves no record of what lies between fused nodes

FUSED = {
    "FusedConv": (
        """g (float[N,3,8,8] x) => (float[N,2] y) { c = com.microsoft.FusedConv<activation="Relu">(x, w, b)
           p = GlobalAveragePool(c) q = Flatten(p) y = MatMul(q, v) }""",
        {"w": normal(4, 3, 3, 3), "b": normal(4), "v": normal(4, 2)}, (5, 3, 8, 8)),
    "FusedGemm": (
        """g (float[N,3] x) => (float[N,2] y) { c = com.microsoft.FusedGemm<activation="Relu">(x, w, b)
           y = MatMul(c, v) }""", {"w": normal(3, 4), "b": normal(4), "v": normal(4, 2)}, (5, 3)),
    "FusedMatMul": (
        """g (float[N,4,3] x) => (float[N,3,2] y) { c = com.microsoft.FusedMatMul<transA=1>(x, w)
           y = MatMul(c, v) }""", {"w": normal(4, 6), "v": normal(6, 2)}, (5, 4, 3)),
    "BiasGelu": (
        """g (float[N,4,3] x) => (float[N,4,2] y) { a = MatMul(x, w) c = com.microsoft.BiasGelu(a, b)
           y = MatMul(c, v) }""", {"w": normal(3, 6), "b": normal(6), "v": normal(6, 2)}, (5, 4, 3)),
    "SkipLayerNormalization": (
        """g (float[N,4,3] x) => (float[N,4,2] y)
           { a = MatMul(x, w) c, m, r, s = com.microsoft.SkipLayerNormalization<epsilon=0.001>(a, x, g, b)
             z = Add(c, s) y = MatMul(z, v) }""",
        {"w": normal(3, 3), "g": normal(3), "b": normal(3), "v": normal(3, 2)}, (5, 4, 3)),
    "Attention": (
        """g (float[N,4,6] x) => (float[N,4,2] y) { c = com.microsoft.Attention<num_heads=2>(x, w, b)
           y = MatMul(c, v) }""", {"w": normal(6, 18), "b": normal(18), "v": normal(6, 2)}, (5, 4, 6)),
}  # fmt: skip


@pytest.mark.parametrize("name", FUSED)
def test_contrib_operators_without_a_record_of_their_shapes(name, tmp_path):
    text, tensors, shape = FUSED[name]
    made = model(text, domains=[("com.microsoft", 1)], **tensors)
    losses, _ = train(made, {"x": normal(*shape)}, tmp_path / "tuned.onnx")
    assert losses[-1] < losses[0]


def test_the_layout_of_one_machine_is_refused_with_a_way_out():
    text = "g (float[1,16,4,4] x) => (float[1,16,4,4] y) { y = com.microsoft.nchwc.Conv(x, w) }"
    made = model(text, domains=[("com.microsoft.nchwc", 1)], w=normal(16, 16, 1, 1))
    with pytest.raises(
        GradientError, match="save the optimised one at the level ORT_ENABLE_EXTENDED"
    ):
        onnxgrad.vjp(made)


# ---- scikit-learn: maps, strings, trees


def with_zipmap(labels="strings"):
    """A small classifier as skl2onnx writes it: labels that are strings, probabilities in a list of maps."""
    made = model(
        """g (float[N,4] X) => (string[N] output_label, float[N,3] output_probability)
           { s = ai.onnx.ml.Scaler<offset=[0.1,0.2,0.3,0.4], scale=[1.0,2.0,3.0,4.0]>(X)
             a = MatMul(s, coefficient) b = Add(a, intercepts) p = Softmax(b)
             i = ArgMax<axis=1,keepdims=0>(p) l = ai.onnx.ml.ArrayFeatureExtractor(classes, i)
             output_label = Reshape(l, minus) output_probability = ai.onnx.ml.ZipMap(p) }""",
        domains=[("ai.onnx.ml", 1)], coefficient=normal(4, 3), intercepts=normal(3), minus=np.array([-1]),
    )  # fmt: skip
    made.graph.initializer.append(
        helper.make_tensor("classes", TensorProto.STRING, [3], [b"a", b"b", b"c"])
    )
    zipmap = made.graph.node[-1]
    zipmap.attribute.append(helper.make_attribute("classlabels_strings", ["a", "b", "c"]))
    output = made.graph.output[1].type
    output.Clear()
    held = output.sequence_type.elem_type.map_type
    held.key_type = TensorProto.STRING
    held.value_type.tensor_type.elem_type = TensorProto.FLOAT
    return made


def test_a_classifier_of_scikit_learn_trains_and_keeps_its_maps(tmp_path):
    made, x = with_zipmap(), normal(6, 4)
    trainer = onnxgrad.Trainer(made, loss={"output_probability": "mse"}, optimizer="sgd", lr=0.1)
    target = np.eye(3, dtype="f4")[[0, 1, 2, 0, 1, 2]]
    losses = [trainer.step(x, target)["loss"] for _ in range(4)]
    assert losses[-1] < losses[0]
    trainer.save(tmp_path / "tuned.onnx")
    label, probability = run(str(tmp_path / "tuned.onnx"), {"X": x})
    assert set(label) <= {"a", "b", "c"}
    assert set(probability[0]) == {"a", "b", "c"}
    assert trainer.predict(x)["output_probability"][0, 0] == pytest.approx(probability[0]["a"])
    assert onnxgrad.inspect(made) is not None


@pytest.mark.parametrize(
    "names", [["a", "b", "c", "a"], ["a", "b", "a", "b"]], ids=["three", "two"]
)
def test_the_command_line_trains_and_predicts_words_and_maps(names, tmp_path, monkeypatch, capsys):
    """`predict` ended in "this is a bug in onnxgrad": a map has no rows to cut."""
    monkeypatch.chdir(tmp_path)
    onnx.save(with_zipmap(), "m.onnx")
    np.savez("d.npz", X=normal(40, 4), label=np.array(names * 10))
    assert main(["train", "m.onnx", "--data", "d.npz", "-o", "t.onnx", "--epochs", "1"]) == 0
    for file in ("p.npz", "p.csv"):
        assert main(["predict", "t.onnx", "--data", "d.npz", "-o", file]) == 0, capsys.readouterr()
    found, (label, probability) = np.load("p.npz"), run("t.onnx", {"X": normal(40, 4)})
    assert list(found["output_label"]) == list(label)
    expected = [list(row.values()) for row in probability]
    np.testing.assert_allclose(found["output_probability"], expected, rtol=1e-5)


def test_a_map_that_is_an_input_is_refused_in_a_sentence():
    made = with_zipmap()
    made.graph.input[0].type.CopyFrom(made.graph.output[1].type.sequence_type.elem_type)
    with pytest.raises(ModelError, match="input 'X' is a map, and only tensors can be trained on"):
        onnxgrad.vjp(made)


def trees():
    node = helper.make_node(
        "TreeEnsembleRegressor", ["x"], ["y"], domain="ai.onnx.ml", n_targets=1,
        nodes_treeids=[0, 0, 0], nodes_nodeids=[0, 1, 2], nodes_featureids=[0, 0, 0],
        nodes_values=[0.5, 0.0, 0.0], nodes_modes=["BRANCH_LEQ", "LEAF", "LEAF"],
        nodes_truenodeids=[1, 0, 0], nodes_falsenodeids=[2, 0, 0],
        target_ids=[0, 0], target_nodeids=[1, 2], target_treeids=[0, 0], target_weights=[1.0, 2.0],
    )  # fmt: skip
    made = model(
        "g (float[N,3] x) => (float[N,1] y) { y = Identity(x) }", domains=[("ai.onnx.ml", 1)]
    )
    made.graph.node[0].CopyFrom(node)
    return made


@pytest.mark.parametrize("what", [onnxgrad.vjp, lambda m: onnxgrad.Trainer(m, loss="mse")])
def test_trees_cannot_be_trained_and_the_sentence_says_what_to_do(what):
    with pytest.raises((OnnxGradError, ValueError)) as error:
        what(trees())
    assert (
        "it is made of decision trees (TreeEnsembleRegressor), which no gradient can train"
        in str(error.value)
    )
    assert "scikit-learn" in str(error.value)


def test_inspect_says_what_is_in_the_place_of_weights():
    """It ended in "no parameter can be trained", without a reason; the Trainer had one."""
    text = """g (float[N,2] x) => (float[N,1] y)
              { y = ai.onnx.ml.LinearRegressor<coefficients=[1.0,2.0], intercepts=[0.5]>(x) }"""
    for made in (trees(), model(text, domains=[("ai.onnx.ml", 1)])):
        (said,) = onnxgrad.inspect(made).warnings
        with pytest.raises(ValueError, match=re.escape(said)):
            onnxgrad.Trainer(made, loss="mse")


def test_weights_in_front_of_trees_are_refused_by_the_tree():
    made = trees()
    made.graph.node.insert(0, helper.make_node("MatMul", ["x", "w"], ["z"]))
    made.graph.node[1].input[0] = "z"
    made.graph.initializer.append(numpy_helper.from_array(normal(3, 3), "w"))
    with pytest.raises(GradientError, match="is an ensemble of decision trees"):
        onnxgrad.vjp(made)


def test_numbers_in_attributes_are_said_to_be_no_weights():
    text = """g (float[N,2] x) => (float[N,1] y)
              { y = ai.onnx.ml.LinearRegressor<coefficients=[1.0,2.0], intercepts=[0.5]>(x) }"""
    with pytest.raises(GradientError, match="its numbers are attributes of LinearRegressor"):
        onnxgrad.vjp(model(text, domains=[("ai.onnx.ml", 1)]))


# ---- bodies


def branches(first="w", second="w"):
    """Two branches with weights of their own, by one name or by two."""

    def branch(name, op_type, seed):
        nodes = [
            helper.make_node("MatMul", ["x", name], ["m"]),
            helper.make_node(op_type, ["m"], ["r"]),
        ]
        result = helper.make_tensor_value_info("r", TensorProto.FLOAT, ["N", 3])
        weight = numpy_helper.from_array(normal(4, 3, seed=seed), name)
        return helper.make_graph(nodes, op_type, [], [result], [weight])

    bodies = {"then_branch": branch(first, "Tanh", 1), "else_branch": branch(second, "Neg", 2)}
    nodes = [
        helper.make_node("Equal", ["rate", "k"], ["c"]),
        helper.make_node("If", ["c"], ["y"], **bodies),
    ]
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes, "g", [info("x", TensorProto.FLOAT, ["N", 4]), info("rate", TensorProto.INT64, [])],
        [info("y", TensorProto.FLOAT, ["N", 3])], [numpy_helper.from_array(np.int64(16000), "k")],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.parametrize("names", [("w", "v"), ("w", "w")])
def test_weights_inside_branches_are_trained_and_written_where_they_were(names, tmp_path):
    made = branches(*names)
    feed = {"x": normal(5, 4), "rate": np.array(16000)}
    other = {**feed, "rate": np.array(8000)}
    losses, written = train(made, feed, tmp_path / "tuned.onnx")
    assert losses[-1] < losses[0]
    assert np.square(run(written, feed)[0]).mean() < losses[-1]
    np.testing.assert_array_equal(run(written, other)[0], run(made, other)[0])
    inner = [a.g for n in written.graph.node for a in n.attribute]
    assert [len(g.initializer) for g in inner] == [1, 1]


@pytest.mark.parametrize("outside", [False, True], ids=["in the file", "in a file beside it"])
def test_names_that_both_branches_have_are_the_models_own(outside, tmp_path):
    """`inspect` refused them, and `vjp` wrote the names that it gave them into the caller's model."""
    made = branches("w", "w")
    before = made.SerializeToString(deterministic=True)
    for call in (onnxgrad.inspect, onnxgrad.vjp, onnxgrad.inspect):
        call(made)
    assert made.SerializeToString(deterministic=True) == before
    saved = onnx.load_from_string(before)  # its weights leave it
    onnx.save(saved, tmp_path / "m.onnx", save_as_external_data=outside, size_threshold=0)
    for model in (made, before, tmp_path / "m.onnx"):
        rows = onnxgrad.inspect(model).parameters
        assert {p.name for p in rows if p.trainable} == {"w", "w_1"}
        assert set(onnxgrad.Trainer(model, loss="mse").get_weights()) == {"w", "w_1"}


# ---- shapes that a file declares and the run does not keep


def declared_wrongly():
    """A softmax over a mask, as an exporter declares it: by the eleven steps of its example."""
    made = model(
        """g (float[1,T,4] x, float[1,T] mask) => (float[1,3] y, float[1,11] attention)
           { a = MatMul(x, w) b = ReduceSum<keepdims=0>(a, last) c = Equal(mask, zero) s = Shape(c)
             n = ConstantOfShape(s) d = Where(c, n, b) attention = Softmax<axis=1>(d)
             e = Unsqueeze(attention, one) f = MatMul(e, a) y = Squeeze(f, one) }""",
        w=normal(4, 3), last=np.array([2]), zero=np.float32(0), one=np.array([1]),
    )  # fmt: skip
    return made


def test_a_size_of_the_exporters_example_does_not_bind_the_gradient():
    made = declared_wrongly()
    feed = {"x": normal(1, 7, 4), "mask": np.ones((1, 7), "f4")}
    session = onnxgrad.session(onnxgrad.vjp(made, outputs=["attention"], wrt=["w"]))
    gradient = session.run(["w_grad"], {**feed, "attention_grad": normal(1, 7)})[0]
    step, moved = 1e-2 * normal(4, 3, seed=5), []
    for sign in (1, -1):
        copy = onnx.ModelProto()
        copy.CopyFrom(made)
        copy.graph.initializer[0].CopyFrom(numpy_helper.from_array(normal(4, 3) + sign * step, "w"))
        moved.append((run(copy, feed)[1] * normal(1, 7)).sum())
    assert np.vdot(gradient, step) == pytest.approx((moved[0] - moved[1]) / 2, rel=1e-2)


def test_a_declared_size_that_nothing_can_change_is_kept():
    made = model(
        "g (float[N,4] x) => (float[N,3] y) { y = my.domain.Classify(x) }",
        domains=[("my.domain", 1)],
    )
    (output,) = load(made).graph.outputs
    assert [d if isinstance(d, int) else d.value for d in output.shape] == ["N", 3]


def embedding_bag():
    """Squared sums of bags of words, one bag a step, as exporters write torch.nn.EmbeddingBag.

    A bag of no words takes the other branch, whose output is an initializer.
    """
    info, node = helper.make_tensor_value_info, helper.make_node
    row, nothing = (info(n, TensorProto.FLOAT, [6]) for n in ("row", "nothing"))
    full = helper.make_graph([node("Mul", ["total", "total"], ["row"])], "full", [], [row])
    zeros = numpy_helper.from_array(np.zeros(6, "f4"), "nothing")
    none = helper.make_graph([], "none", [], [nothing], [zeros])
    nodes = [
        node("Gather", ["begin", "i"], ["first"]),
        node("Gather", ["end", "i"], ["last"]),
        node("Unsqueeze", ["first", "zero"], ["from"]),
        node("Unsqueeze", ["last", "zero"], ["to"]),
        node("Slice", ["ids", "from", "to"], ["bag"]),
        node("Gather", ["table", "bag"], ["words"]),
        node("Tanh", ["words"], ["bent"]),
        node("ReduceSum", ["bent", "zero"], ["total"], keepdims=0),
        node("Less", ["first", "last"], ["some"]),
        node("If", ["some"], ["out"], then_branch=full, else_branch=none),
        node("Identity", ["go"], ["goes"]),
    ]
    body = helper.make_graph(
        nodes, "body", [info("i", TensorProto.INT64, []), info("go", TensorProto.BOOL, [])],
        [info("goes", TensorProto.BOOL, []), info("out", TensorProto.FLOAT, [6])],
    )  # fmt: skip
    sizes = (("ids", "words"), ("begin", "bags"), ("end", "bags"))
    tensors = {"table": normal(9, 6), "zero": np.array([0])}
    graph = helper.make_graph(
        [node("Size", ["begin"], ["count"]), node("Loop", ["count", ""], ["y"], body=body)], "g",
        [info(n, TensorProto.INT64, [d]) for n, d in sizes],
        [info("y", TensorProto.FLOAT, ["bags", 6])],
        [numpy_helper.from_array(a, n) for n, a in tensors.items()],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def test_bags_of_different_sizes_in_the_steps_of_a_loop(tmp_path):
    """y = (Σ tanh t)² over the rows t of a bag: dt = dy·2·(Σ tanh t)·(1 - tanh² t)."""
    made = embedding_bag()
    ids = np.array([1, 2, 2, 5, 0, 1, 7])
    feed = {"ids": ids, "begin": np.array([0, 3, 3]), "end": np.array([3, 3, 7])}
    dy = normal(3, 6, seed=4)
    session = onnxgrad.session(onnxgrad.vjp(made, wrt=["table"]))
    gradient = session.run(["table_grad"], {**feed, "y_grad": dy})[0]
    bent, expected = np.tanh(normal(9, 6).astype("f8")), np.zeros((9, 6))
    for bag, (begin, end) in enumerate(zip(feed["begin"], feed["end"], strict=True)):
        total = bent[ids[begin:end]].sum(0)
        for word in ids[begin:end]:
            expected[word] += dy[bag] * 2 * total * (1 - bent[word] ** 2)
    np.testing.assert_allclose(gradient, expected, rtol=1e-5, atol=1e-6)
    losses, _ = train(made, feed, tmp_path / "tuned.onnx")
    assert losses[-1] < losses[0]
