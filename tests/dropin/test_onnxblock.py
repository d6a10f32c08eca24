"""onnxgrad.onnxblock and generate_artifacts: what is built, and what it computes."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from dropin.helpers import LABELS, NAMES, X, arrays_of, classifier, make
from onnx import TensorProto, helper, numpy_helper

import onnxgrad
from onnxgrad import artifacts, onnxblock

RANDOM = np.random.RandomState(5)


class Then(onnxblock.ForwardBlock):
    """A block as a whole model."""

    def __init__(self, block):
        super().__init__()
        self.block = block

    def build(self, *names):
        return self.block(*names)


def values(**kinds) -> onnx.ModelProto:
    """A model of inputs only."""
    graph = helper.make_graph(
        [], "g", [helper.make_tensor_value_info(n, k, d) for n, (k, d) in kinds.items()], []
    )
    opsets = [
        helper.make_opsetid("", 15),
        helper.make_opsetid("ai.onnx.ml", 3),
        helper.make_opsetid("com.microsoft", 1),
    ]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def run(block, **arrays) -> np.ndarray:
    kinds = {n: (helper.np_dtype_to_tensor_dtype(a.dtype), a.shape) for n, a in arrays.items()}
    whole = Then(block)
    with onnxblock.base(values(**kinds)):
        whole(*arrays)
    session = onnxruntime.InferenceSession(whole.to_model_proto().SerializeToString())
    return session.run(None, arrays)[0]


A, B = RANDOM.rand(3, 4).astype(np.float32) + 0.5, RANDOM.rand(3, 4).astype(np.float32) + 0.5
blocks = onnxblock.blocks

SIMPLE = [
    (blocks.Add, {"a": A, "b": B}, A + B),
    (blocks.Sub, {"a": A, "b": B}, A - B),
    (blocks.Mul, {"a": A, "b": B}, A * B),
    (blocks.Div, {"a": A, "b": B}, A / B),
    (lambda: blocks.Pow(3.0), {"a": A}, A**3),
    (blocks.ReduceMean, {"a": A}, A.mean(keepdims=True)),
    (lambda: blocks.ReduceMean(keepdims=False), {"a": A}, A.mean()),
    (lambda: blocks.ReduceSum(keepdims=False), {"a": A}, A.sum()),
    (blocks.Sigmoid, {"a": A}, 1 / (1 + np.exp(-A))),
    (blocks.Log, {"a": A}, np.log(A)),
    (blocks.Neg, {"a": A}, -A),
    (blocks.Abs, {"a": -A}, A),
    (lambda: blocks.Clip(0.7, 1.1), {"a": A}, np.clip(A, 0.7, 1.1)),
    (lambda: blocks.Clip(clip_max=1.1), {"a": A}, np.minimum(A, 1.1)),
    (lambda: blocks.Cast(to=TensorProto.INT64), {"a": 9 * A}, (9 * A).astype(np.int64)),
    (lambda: blocks.LabelEncoder(keys_int64s=[1, 2], values_int64s=[5, 6], default_int64=7),
     {"a": np.array([2, 1, 9])}, np.array([6, 5, 7])),
]  # fmt: skip


@pytest.mark.parametrize(("make_block", "arrays", "expected"), SIMPLE, ids=range(len(SIMPLE)))
def test_blocks(make_block, arrays, expected):
    found = run(make_block(), **arrays)
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    assert found.shape == np.shape(expected)


def test_a_linear_block_has_weights_of_its_own():
    whole = Then(blocks.Linear(4, 2, alpha=2.0, beta=3.0))
    with onnxblock.base(values(a=(1, [3, 4]))):
        whole("a")
    model = whole.to_model_proto()
    w, b = (numpy_helper.to_array(t) for t in model.graph.initializer)
    found = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"a": A})[0]
    np.testing.assert_allclose(found, 2 * A @ w + 3 * b, rtol=1e-5)
    bare = Then(blocks.Linear(4, 2, bias=False))
    with onnxblock.base(values(a=(1, [3, 4]))):
        bare("a")
    assert len(bare.to_model_proto().graph.initializer) == 1


def softmax_loss(scores, labels, weights=None, ignored=None):
    shifted = scores - scores.max(1, keepdims=True)
    log_p = shifted - np.log(np.exp(shifted).sum(1, keepdims=True))
    c = np.ones(len(labels)) if weights is None else weights[labels]
    c = np.where(labels == ignored, 0, c)
    each = -c * log_p[np.arange(len(labels)), labels]
    return each, c.sum()


T = RANDOM.rand(3, 4).astype(np.float32)
Z = (6 * RANDOM.rand(3, 4) - 3).astype(np.float32)
P = np.array([1, 2, 3, 0.5], np.float32)
REDUCE = {"mean": np.mean, "sum": np.sum, "none": lambda x: x}


def bce(z, t, pos=1.0):
    z = z.astype(np.float64)
    return pos * t * np.log1p(np.exp(-z)) + (1 - t) * np.log1p(np.exp(z))


@pytest.mark.parametrize("reduction", REDUCE)
@pytest.mark.parametrize(
    ("loss", "settings", "expected"),
    [
        ("MSELoss", {}, (Z - T) ** 2),
        ("L1Loss", {}, np.abs(Z - T)),
        ("BCEWithLogitsLoss", {}, bce(Z, T)),
        ("BCEWithLogitsLoss", {"pos_weight": P}, bce(Z, T, P)),
        ("BCEWithLogitsLoss", {"weight": P}, P * bce(Z, T)),
    ],
)
def test_losses_of_tensors(loss, settings, expected, reduction):
    found = loss_of(getattr(onnxblock.loss, loss)(reduction=reduction, **settings), Z, target=T)
    np.testing.assert_allclose(found, REDUCE[reduction](expected), rtol=1e-5)


def loss_of(block, prediction, **targets):
    """Run a loss on a model whose output is its input."""
    model = values(x=(1, prediction.shape))
    model.graph.node.append(helper.make_node("Identity", ["x"], ["y"]))
    model.graph.output.append(helper.make_tensor_value_info("y", 1, prediction.shape))
    whole = Then(block)
    with onnxblock.base(model):
        whole("y")
    session = onnxruntime.InferenceSession(whole.to_model_proto().SerializeToString())
    assert [i.name for i in session.get_inputs()] == ["x", *targets]
    return session.run(None, {"x": prediction, **targets})[0]


def test_binary_cross_entropy_stays_finite():
    far = np.array([[-200.0, 200.0]], np.float32)
    found = loss_of(onnxblock.loss.BCEWithLogitsLoss(), far, target=np.array([[1, 0]], np.float32))
    np.testing.assert_allclose(found, 200)


LABELLED = np.array([2, 0, 3])


@pytest.mark.parametrize(
    ("settings", "weights", "ignored"),
    [({}, None, None), ({"weight": P}, P, None), ({"ignore_index": 0}, None, 0)],
)
def test_cross_entropy(settings, weights, ignored):
    each, total = softmax_loss(Z, LABELLED, weights, ignored)
    found = loss_of(onnxblock.loss.CrossEntropyLoss(**settings), Z, labels=LABELLED)
    np.testing.assert_allclose(found, each.sum() / total, rtol=1e-5)
    found = loss_of(
        onnxblock.loss.CrossEntropyLoss(reduction="sum", **settings), Z, labels=LABELLED
    )
    np.testing.assert_allclose(found, each.sum(), rtol=1e-5)


# ---- training blocks


class Judged(onnxblock.TrainingBlock):
    def __init__(self, loss):
        super().__init__()
        self.loss = loss

    def build(self, name):
        return self.loss(name)


def trained(model: onnx.ModelProto, names, loss=None) -> Judged:
    block = Judged(loss or onnxblock.loss.CrossEntropyLoss())
    for name in names:
        block.requires_grad(name)
    with onnxblock.base(model):
        block(model.graph.output[0].name)
    return block


def test_parameters_are_what_is_marked():
    block = Judged(onnxblock.loss.MSELoss())
    block.requires_grad("fc1.weight")
    block.requires_grad("fc2.bias")
    block.requires_grad("fc2.bias", False)
    model = classifier()
    with onnxblock.base(model):
        block("output")
    on, off = block.parameters()
    assert [t.name for t in on] == ["fc1.weight"]
    assert [t.name for t in off] == ["fc2.bias"]
    np.testing.assert_array_equal(numpy_helper.to_array(on[0]), arrays_of(model)["fc1.weight"])
    training, evaluation = block.to_model_proto()
    for each in (training, evaluation):
        assert [v.name for v in each.graph.input][:4] == [
            "input",
            "target",
            "fc1.weight",
            "fc2.bias",
        ]
        assert {t.name for t in each.graph.initializer} >= {"fc1.bias", "fc2.weight"}


def test_gradients_of_inputs():
    training, _ = trained(classifier(), ["input"]).to_model_proto()
    assert "input_grad.accumulation.buffer" in [v.name for v in training.graph.input]
    assert "input_grad.accumulation.out" in [v.name for v in training.graph.output]


def test_nothing_to_train_is_a_model_without_gradients():
    block = trained(classifier(), [])
    training, _ = block.to_model_proto()
    assert block.parameters() == ([], [])
    assert len(training.graph.output) == 1
    assert {t.name for t in training.graph.initializer} >= set(NAMES)
    onnxgrad.session(training)


@pytest.mark.parametrize("opset", [13, 14, 15, 17, 21])
def test_every_model_keeps_the_opset(tmp_path, opset):
    files = make(tmp_path, classifier(opset), ort_format=True)
    for name in ("training", "eval", "optimizer"):
        model = onnx.load(tmp_path / f"{name}_model.onnx")
        assert {o.domain: o.version for o in model.opset_import}[""] == opset
        assert (tmp_path / f"{name}_model.ort").stat().st_size > 0
    assert np.isfinite(files.module()(X, LABELS))


def test_opset_11_trains_too(tmp_path):
    files = make(tmp_path, classifier(11), loss=artifacts.LossType.MSELoss)
    state = files.state()
    module = files.module(state)
    assert np.isfinite(module(X, np.zeros((6, 5), np.float32)))
    assert state.parameters["fc1.weight"].grad.any()


def test_prefix_path_and_nominal_checkpoint(tmp_path, monkeypatch):
    path = tmp_path / "model.onnx"
    onnx.save(classifier(), path)
    monkeypatch.chdir(tmp_path)
    artifacts.generate_artifacts(
        str(path), requires_grad=NAMES, loss=artifacts.LossType.CrossEntropyLoss,
        optimizer=artifacts.OptimType.SGD, prefix="my_", nominal_checkpoint=True,
    )  # fmt: skip
    found = sorted(p.name for p in tmp_path.iterdir() if p != path)
    assert found == ["my_checkpoint", "my_eval_model.onnx", "my_nominal_checkpoint",
                     "my_optimizer_model.onnx", "my_training_model.onnx"]  # fmt: skip


def test_without_loss_the_first_output_is_minimised(tmp_path, caplog):
    files = make(tmp_path, loss=None)
    assert "'output' is minimised, and holds several numbers: their sum is taken" in caplog.text
    state = files.state()
    module = files.module(state)
    output = module(X)
    assert output.shape == (6, 5)
    np.testing.assert_allclose(state.parameters["fc2.bias"].grad, np.full(5, 6), rtol=1e-6)


def two_outputs() -> onnx.ModelProto:
    model = classifier()
    model.graph.node.append(helper.make_node("Tanh", ["output"], ["tanh"]))
    model.graph.output.append(helper.make_tensor_value_info("tanh", 1, ["batch", 5]))
    return model


def test_the_loss_can_judge_one_of_several_outputs(tmp_path):
    files = make(
        tmp_path, two_outputs(), loss=artifacts.LossType.MSELoss, loss_input_names=["tanh"]
    )
    module = files.module()
    assert module.input_names() == ["input", "target"]
    assert np.isfinite(module(X, np.zeros((6, 5), np.float32)))


class WeightedSum(onnxblock.Block):
    def __init__(self):  # as users write it: without the base class's own
        self._first = onnxblock.loss.CrossEntropyLoss()
        self._second = onnxblock.loss.L1Loss()
        self._half = blocks.Constant(0.5)
        self._mul, self._add = blocks.Mul(), blocks.Add()

    def build(self, scores, bounded):
        second = self._mul(self._half(), self._second(bounded, target_name="target"))
        return self._add(self._first(scores), second)


def test_a_loss_of_ones_own(tmp_path):
    module = make(tmp_path, two_outputs(), loss=WeightedSum()).module()
    output = module(X, np.zeros((6, 5), np.float32), LABELS)
    files = make(tmp_path)
    module = files.module()
    plain = module(X, LABELS)
    session = onnxruntime.InferenceSession(two_outputs().SerializeToString())
    tanh = session.run(["tanh"], {"input": X})[0]
    np.testing.assert_allclose(output, [plain + 0.5 * np.abs(tanh).mean()], rtol=1e-5)


def test_a_checkpoint_goes_back_into_a_model(tmp_path):
    model = classifier()
    block = trained(model, NAMES)
    onnxblock.save_checkpoint(block.parameters(), tmp_path / "c")
    for tensor in model.graph.initializer:
        zeros = np.zeros(tensor.dims, np.float32)
        tensor.CopyFrom(numpy_helper.from_array(zeros, tensor.name))
    onnxblock.load_checkpoint_to_model(tmp_path / "c", model)
    for name, array in arrays_of(classifier()).items():
        np.testing.assert_array_equal(arrays_of(model)[name], array)


def test_an_optimizer_model_runs_in_any_session():
    """The files say what their operators mean; the updates are other outputs of the node."""
    block = trained(classifier(), NAMES)
    for optimizer in (
        onnxblock.optim.AdamW(),
        onnxblock.optim.SGD(onnxblock.optim.ClipGradNorm(1.0)),
    ):
        with onnxblock.empty_base(opset_version=15) as accessor:
            output = optimizer(block.parameters())
        session = onnxruntime.InferenceSession(accessor.model.SerializeToString())
        some = [A, B[0]]
        feeds = {
            "learning_rate": np.array([0.1], np.float32), "step": np.array([1]), "params": some, "gradients": some,
            "first_order_moments": some, "second_order_moments": some,
        }  # fmt: skip
        feeds = {i.name: feeds[i.name] for i in session.get_inputs()}
        assert session.run([output], feeds)[0].tolist() == [True]


def test_clipping_in_any_session():
    with onnxblock.empty_base(opset_version=15) as accessor:
        value = helper.make_tensor_sequence_value_info("gradients", TensorProto.FLOAT, None)
        accessor.model.graph.input.append(value)
        whole = Then(onnxblock.optim.ClipGradNorm(0.5))
        whole("gradients")
    session = onnxruntime.InferenceSession(whole.to_model_proto().SerializeToString())
    found = session.run(None, {"gradients": [A, B[0]]})[0]
    norm = np.sqrt((A**2).sum() + (B[0] ** 2).sum())
    np.testing.assert_allclose(found[0], A * 0.5 / norm, rtol=1e-5)
    np.testing.assert_allclose(found[1], B[0] * 0.5 / norm, rtol=1e-5)
