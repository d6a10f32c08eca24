"""Losses that fit the end of a model, schedules that count epochs, metrics that do not depend on the batch."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from onnxgrad import Trainer
from onnxgrad.data.images import Images
from onnxgrad.data.read import read
from onnxgrad.errors import DataError
from onnxgrad.train import losses, schedules

RNG = np.random.default_rng(5)
X = RNG.normal(size=(12, 6)).astype(np.float32)
YES = (RNG.random((12, 1)) > 0.5).astype(np.float32)
LABELS = RNG.integers(0, 3, 12)


def model(end: str, width: int, shape: str, extra: str = "") -> onnx.ModelProto:
    made = onnx.parser.parse_model(f"""
        <ir_version: 8, opset_import: ["" : 17]>
        net (float[N, 6] x) => (float[{shape}] y)
        <int64[1] last = {{-1}}, float low = {{0.001}}, float high = {{0.999}}{extra}>
        {{ z = MatMul(x, w)  {end} }}""")
    w = np.random.default_rng(1).normal(size=(6, width)).astype(np.float32)
    made.graph.initializer.append(onnx.numpy_helper.from_array(w, "w"))
    return made


def first_loss(proto: onnx.ModelProto, loss, target) -> float:
    return Trainer(proto, loss=loss, optimizer="sgd", trainable="w").step(X, target)["loss"]


def logits(width: int) -> np.ndarray:
    return X.astype(np.float64) @ np.random.default_rng(1).normal(size=(6, width)).astype(
        np.float32
    )


def bce(p: np.ndarray, y: np.ndarray) -> float:
    return float(-(y * np.log(p) + (1 - y) * np.log(1 - p)).mean())


SIGMOIDS = {
    "as it is": ("y = Sigmoid(z)", 1, "N, 1"),
    "Identity": ("s = Sigmoid(z) y = Identity(s)", 1, "N, 1"),
    "Squeeze and Unsqueeze": ("s = Sigmoid(z) q = Squeeze(s, last) y = Unsqueeze(q, last)", 1, "N, 1"),
    "Transpose twice": ("s = Sigmoid(z) t = Transpose<perm=[1,0]>(s) y = Transpose<perm=[1,0]>(t)", 1, "N, 1"),
}  # fmt: skip


@pytest.mark.parametrize("end", SIGMOIDS.values(), ids=SIGMOIDS.keys())
def test_there_are_never_two_sigmoids(end):
    expected = bce(1 / (1 + np.exp(-logits(1))), YES)
    assert first_loss(model(*end), "bce", YES) == pytest.approx(expected, rel=1e-5)


PARTS = {
    "1 - p": ("n = Neg(z) s = Sigmoid(n) y = Sub(one, s)", 1, "N, 1"),
    "1/(1 + exp(-z))": ("n = Neg(z) e = Exp(n) d = Add(e, one) y = Div(one, d)", 1, "N, 1"),
    "½ + ½·tanh(z/2)": ("h = Mul(z, half) t = Tanh(h) u = Mul(t, half) y = Add(u, half)", 1, "N, 1"),
    "Slice of both classes": ("n = Neg(z) b = Concat<axis=1>(n, z) h = Mul(b, half) s = Softmax(h) "
                              "y = Slice(s, at, end, at)", 1, "N, 1"),
    "p·1 through a Max": ("s = Sigmoid(z) m = Mul(s, one) y = Max(m, low)", 1, "N, 1"),
}  # fmt: skip
NUMBERS = ", float one = {1}, float half = {0.5}, int64[1] at = {1}, int64[1] end = {9}"


@pytest.mark.parametrize("end", PARTS.values(), ids=PARTS.keys())
def test_a_sigmoid_behind_any_tail_is_not_followed_by_another(end):
    trainer = Trainer(model(*end, NUMBERS), loss="bce", optimizer="sgd", trainable="w")
    expected = bce(1 / (1 + np.exp(-logits(1))).clip(0.001), YES)
    assert trainer.step(X, YES)["loss"] == pytest.approx(expected, rel=1e-4)
    assert [n.kind for n in trainer.notes if n.subject == "y"] == ["probabilities"]


def test_logits_that_happen_to_lie_between_0_and_1_stay_logits():
    proto = model("y = Identity(z)", 1, "N, 1")
    small = np.abs(X) * 0.01 * np.sign(np.random.default_rng(1).normal(size=(6, 1))).T
    trainer = Trainer(proto, loss="bce", optimizer="sgd", trainable="w")
    z = trainer.predict(small.astype(np.float32))
    assert 0 < z.min() <= z.max() < 1
    expected = bce(1 / (1 + np.exp(-z.astype(np.float64))), YES)
    assert trainer.step(small.astype(np.float32), YES)["loss"] == pytest.approx(expected, rel=1e-5)


SOFTMAXES = {
    "in parts": "e = Exp(z) t = ReduceSum(e, last) y = Div(e, t)",
    "in parts, kept from 0": "e = Exp(z) t = ReduceSum(e, last) c = Clip(t, low) y = Div(e, c)",
    "as JAX writes it": "m = ReduceMax<axes=[-1]>(z) s = Sub(z, m) e = Exp(s) "
                        "t = ReduceSum<keepdims=0>(e, last) r = Unsqueeze(t, last) h = Shape(z) "
                        "b = Expand(r, h) y = Div(e, b)",
    "to the power of a weight": "s = Softmax(z) a = Pow(s, v) t = ReduceSum(a, last) i = Reciprocal(t) "
                                "y = Mul(a, i)",
    "of a Gather": "s = Softmax(z) y = Gather<axis=1>(s, order)",
}  # fmt: skip


@pytest.mark.parametrize("end", SOFTMAXES.values(), ids=SOFTMAXES.keys())
def test_probabilities_are_seen_on_the_first_batch(end):
    proto = model(end, 3, "N, 3", ", int64[3] order = {0, 1, 2}, float[3] v = {1, 1, 1}")
    trainer = Trainer(proto, loss="cross_entropy", optimizer="sgd", trainable="w")
    assert trainer.step(X, LABELS)["loss"] == pytest.approx(nll(logits(3)), rel=1e-4)
    assert [n.kind for n in trainer.notes if n.subject == "y"] == ["probabilities"]
    assert "add up to 1 on the first batch" in str(trainer.notes[-1])


def sequence(dims: str, perm: str = "0,1,2") -> onnx.ModelProto:
    """x [N, 6] times w [6, 12], seen as [N, 3, 4] and moved."""
    return model(f"r = Reshape(z, shape) y = Transpose<perm=[{perm}]>(r)", 12, dims,
                 ", int64[3] shape = {0, 3, 4}")  # fmt: skip


def cross_entropy(z: np.ndarray, labels: np.ndarray, axis: int) -> float:
    z = np.moveaxis(z, axis, -1)
    p = np.exp(z) / np.exp(z).sum(-1, keepdims=True)
    return float(-np.log(np.take_along_axis(p, labels[..., None], -1)).mean())


@pytest.mark.parametrize("axis", [1, 2])
@pytest.mark.parametrize("use", ["step", "evaluate", "fit", "check first"])
def test_the_class_axis_follows_from_the_labels(axis, use):
    labels = RNG.integers(0, (0, 3, 4)[axis], size=(12, (0, 4, 3)[axis]))
    trainer = Trainer(sequence("N, 3, 4"), loss="cross_entropy", optimizer="sgd", trainable="w")
    if use == "check first":
        trainer.check(X, labels)
    if use in ("evaluate", "fit"):
        found = getattr(trainer, use)(X, labels, batch_size=12)
        found = found["loss"] if use == "evaluate" else found["loss"][0]
    else:
        found = trainer.step(X, labels)["loss"]
    expected = cross_entropy(logits(12).reshape(12, 3, 4), labels, axis)
    assert found == pytest.approx(expected, rel=1e-5)
    said = [str(n) for n in trainer.notes if n.kind == "class axis"]
    assert said == ([] if axis == 2 else [
        "the classes of output 'y' are taken from axis 1, because the labels have shape [12, 4]; "
        "CrossEntropy(axis=2) or --axis 2 takes axis 2"
    ])  # fmt: skip


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("axis", [1, 2, 3, -1, -2])
def test_classes_along_any_axis(axis, smoothing):
    """[3, 2, 4, 5] of rows and classes: everything but the classes is counted alike."""
    sizes = (3, 2, 4, 5)
    z = RNG.normal(size=sizes).astype(np.float32)
    labels = RNG.integers(0, sizes[axis], np.delete(sizes, axis))
    net = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["" : 17]>
        net (float[N, 2, 4, 5] x) => (float[N, 2, 4, 5] y) <float[1] w = {1}> { y = Mul(x, w) }""")
    loss = losses.CrossEntropy(axis=axis, label_smoothing=smoothing)
    found = Trainer(net, loss=loss, optimizer="sgd", lr=0.0).step(z, labels)["loss"]
    rows = np.moveaxis(z.astype(np.float64), axis, -1)
    log_p = rows - np.log(np.exp(rows).sum(-1, keepdims=True))
    expected = (1 - smoothing) * cross_entropy(z, labels, axis) - smoothing * log_p.mean()
    assert found == pytest.approx(expected, rel=1e-5)


def test_weights_that_were_set_before_the_first_batch_stay():
    trainer = Trainer(sequence("N, 3, 4"), loss="ce", optimizer="sgd", lr=1e-9, trainable="w")
    trainer.set_weights({"w": np.full((6, 12), 0.25, np.float32)})
    trainer.step(X, np.zeros((12, 4), np.int64))
    np.testing.assert_allclose(trainer.get_weights()["w"], 0.25, rtol=1e-5)
    assert trainer.steps == 1


def test_where_both_axes_fit_the_axis_is_asked_for():
    square = model("y = Reshape(z, shape)", 9, "N, 3, 3", ", int64[3] shape = {0, 3, 3}")
    labels = RNG.integers(0, 3, size=(12, 3))
    trainer = Trainer(square, loss="cross_entropy", optimizer="sgd", trainable="w")
    with pytest.raises(
        DataError, match=r"may lie in axis 1 or 2.*CrossEntropy\(axis=1\).*--axis 1"
    ):
        trainer.step(X, labels)
    for axis in (1, 2):
        found = first_loss(square, losses.CrossEntropy(axis=axis), labels)
        expected = cross_entropy(logits(9).reshape(12, 3, 3), labels, axis)
        assert found == pytest.approx(expected, rel=1e-5)


def test_an_open_size_is_measured():
    open_sizes = sequence("N, A, B")
    labels = RNG.integers(0, 3, size=(12, 4))
    expected = cross_entropy(logits(12).reshape(12, 3, 4), labels, 1)
    assert first_loss(open_sizes, "cross_entropy", labels) == pytest.approx(expected, rel=1e-5)


def test_probabilities_that_were_clipped_or_averaged_are_taken_as_such():
    p = 1 / (1 + np.exp(-logits(4)))
    clipped = model("s = Sigmoid(z) y = Clip(s, low, high)", 4, "N, 4")
    target = np.repeat(YES, 4, axis=1)
    assert first_loss(clipped, "bce", target) == pytest.approx(
        bce(p.clip(0.001, 0.999), target), rel=1e-5
    )
    averaged = model("s = Sigmoid(z) y = ReduceMean<axes=[1]>(s)", 4, "N, 1")
    trainer = Trainer(averaged, loss="bce", optimizer="sgd", trainable="w")
    assert trainer.step(X, YES)["loss"] == pytest.approx(
        bce(p.mean(1, keepdims=True), YES), rel=1e-5
    )
    assert [n.kind for n in trainer.notes if n.subject == "y"] == ["probabilities"]


def nll(z: np.ndarray) -> float:
    shifted = z - z.max(1, keepdims=True)
    log_p = shifted - np.log(np.exp(shifted).sum(1, keepdims=True))
    return float(-log_p[np.arange(12), LABELS].mean())


@pytest.mark.parametrize(
    ("end", "loss"),
    [
        ("y = Softmax(z)", "cross_entropy"),
        ("s = Softmax(z) t = Transpose<perm=[1,0]>(s) y = Transpose<perm=[1,0]>(t)", "cross_entropy"),
        ("s = Softmax(z) y = Clip(s, low, high)", "cross_entropy"),
        ("y = LogSoftmax(z)", "nll"),
        ("y = Softmax(z)", "nll_probabilities"),
    ],
    ids=["softmax", "moved", "clipped", "log-probabilities", "probabilities"],
)  # fmt: skip
def test_probabilities_and_their_logarithms_have_their_loss(end, loss):
    near = 1e-2 if "Clip" in end else 1e-5
    assert first_loss(model(end, 3, "N, 3"), loss, LABELS) == pytest.approx(
        nll(logits(3)), rel=near
    )


def test_bce_of_probabilities_is_what_it_says():
    p = 1 / (1 + np.exp(-logits(1)))
    proto = model("s = Sigmoid(z) y = Identity(s)", 1, "N, 1")
    assert first_loss(proto, "bce_probabilities", YES) == pytest.approx(bce(p, YES), rel=1e-5)
    assert isinstance(losses.NAMES["bce_probabilities"](), losses.Loss)


@pytest.mark.parametrize("metric", ["accuracy", "f1"])
@pytest.mark.parametrize("end", ["y = Identity(z)", "y = Sigmoid(z)"], ids=["logits", "p"])
@pytest.mark.parametrize("scale", [1, 0.1], ids=["", "small"])
def test_metrics_do_not_depend_on_the_batch_size(metric, end, scale):
    """Small logits lie between 0 and 1 in many a batch, and are no probabilities there either."""
    trainer = Trainer(model(end, 1, "N, 1"), loss="bce", metrics=metric, trainable="w")
    x = (scale * X).astype(np.float32)
    found = {n: trainer.evaluate(x, YES, batch_size=n)[metric] for n in (1, 2, 5, 12)}
    assert len(set(found.values())) == 1
    if metric == "accuracy":
        assert found[1] == pytest.approx(float(((logits(1) > 0) == YES).mean()))


@pytest.mark.parametrize("metric", ["accuracy", "f1", "top5"])
def test_right_answers_are_not_counted_in_a_regression(metric):
    with pytest.raises(
        ValueError, match=f"'{metric}' counts right answers, and the loss of output"
    ):
        Trainer(model("y = Identity(z)", 1, "N, 1"), loss="mse", metrics=metric, trainable="w")


def test_one_hot_labels_and_a_flat_target_are_taken_with_a_note():
    proto = model("y = Identity(z)", 3, "N, 3")
    trainer = Trainer(proto, loss="cross_entropy", optimizer="sgd", trainable="w")
    one_hot = np.eye(3, dtype=np.float32)[LABELS]
    assert trainer.step(X, one_hot)["loss"] == pytest.approx(nll(logits(3)), rel=1e-5)
    assert "one-hot" in str(next(n for n in trainer.notes if n.kind == "target"))
    with pytest.raises(DataError):
        trainer.step(X, one_hot * 0.5)
    column = Trainer(model("y = Identity(z)", 1, "N, 1"), loss="mse", trainable="w")
    expected = float(((logits(1) - YES) ** 2).mean())
    assert column.step(X, YES[:, 0])["loss"] == pytest.approx(expected, rel=1e-5)
    assert sum(n.kind == "target" for n in column.notes) == 1


@pytest.mark.parametrize(
    ("schedule", "rates"),
    [
        (schedules.Step(every=2, gamma=0.1), [1.0, 1.0, 0.1, 0.1]),
        (schedules.Exponential(gamma=0.5), [1.0, 0.5, 0.25, 0.125]),
    ],
    ids=["step", "exponential"],
)
def test_step_and_exponential_count_epochs(schedule, rates):
    trainer = Trainer(
        model("y = Identity(z)", 1, "N, 1"), loss="mse", optimizer="sgd", lr=1.0, trainable="w",
        schedule=schedule, clip_norm=1e-6,
    )  # fmt: skip
    history = trainer.fit(X, YES, epochs=4, batch_size=2)
    assert history["lr"] == pytest.approx(rates)


def test_flags_of_schedules():
    assert schedules.named("plateau", every=3, factor=0.5, floor=1e-6) == schedules.ReduceOnPlateau(
        patience=3, factor=0.5, min_lr=1e-6
    )
    assert schedules.named("cosine", floor=1e-5).floor == 1e-5
    with pytest.raises(ValueError, match="the schedule 'cosine' has no factor"):
        schedules.named("cosine", factor=0.5)


def test_a_table_without_a_header_is_refused(tmp_path):
    path = tmp_path / "iris.csv"
    path.write_text("5.1,3.5,setosa\n4.9,3.0,setosa\n6.1,2.9,virginica\n5.0,3.6,setosa\n")
    with pytest.raises(DataError, match="seems to have no header: 'setosa' of its first line"):
        read(path)
    path.write_text("length,width,kind\n5.1,3.5,setosa\n4.9,3.0,setosa\n")
    assert list(read(path).columns) == ["length", "width", "kind"]
    path.write_text("5.1,3.5,rare\n4.9,3.0,setosa\n6.1,3.9,virginica\n")
    with pytest.raises(DataError, match=r"seems to have no header: '5\.1' of its first line"):
        read(path)
    for header in (
        "0,1,kind",
        "2019,2020,kind",
        "400.5,401.5,kind",
    ):  # a data frame's, years, a spectrum's
        path.write_text(f"{header}\n4.9,3.0,setosa\n6.1,3.9,virginica\n0.1,2100,setosa\n")
        assert list(read(path).columns) == header.split(",")


def test_pictures_stand_as_their_camera_was_held(tmp_path):
    image = pytest.importorskip("PIL.Image")
    pixels = np.zeros((4, 4, 3), np.uint8)
    pixels[0] = 255  # a white line at the top
    for name, orientation in (("a", 1), ("b", 3)):  # 3: turned by half
        (tmp_path / name).mkdir()
        exif = image.Exif()
        exif[0x0112] = orientation
        image.fromarray(pixels).save(tmp_path / name / "1.png", exif=exif)
    upright, turned = np.asarray(Images([tmp_path / n / "1.png" for n in "ab"])[:2])
    np.testing.assert_array_equal(upright[:, ::-1, ::-1], turned)
    assert upright[:, 0].min() == 1
