"""An ONNX model among scikit-learn's estimators: its own checks, a grid, a pipeline, pickles, new heads."""

from __future__ import annotations

import io
import pickle
import re
import warnings

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest
from places import DOCS

pytest.importorskip("sklearn", reason="needs scikit-learn: pip install 'onnxgrad[sklearn]'")

from sklearn.base import clone
from sklearn.compose import TransformedTargetRegressor
from sklearn.datasets import load_diabetes, load_digits, load_iris, load_wine
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import GridSearchCV, cross_val_score, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator

from onnxgrad.demo import models
from onnxgrad.sklearn import OnnxClassifier, OnnxRegressor, estimators, mlp
from onnxgrad.sklearn.network import row_shape

MAY_SKIP = ("SCIPY_ARRAY_API is not set", "pandas is not installed")


@pytest.mark.parametrize(
    "estimator", [OnnxClassifier(), OnnxRegressor()], ids=lambda e: type(e).__name__
)
def test_every_check_of_scikit_learn_passes(estimator):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = check_estimator(estimator, on_fail=None)
    failed = [f"{r['check_name']}: {r['exception']!r}" for r in found if r["status"] == "failed"]
    assert failed == []
    skipped = [r for r in found if r["status"] == "skipped"]
    assert all(str(r["exception"]).startswith(MAY_SKIP) for r in skipped)
    assert sum(r["status"] == "passed" for r in found) >= 45


def test_a_grid_over_a_pipeline_finds_settings_for_wine(tmp_path):
    """From the raw table to a tuned file, beside logistic regression; the file gives the same answers."""
    x, y = load_wine(return_X_y=True)
    names = np.array(["barolo", "grignolino", "barbera"])[y]
    train_x, test_x, train_y, test_y = train_test_split(x, names, random_state=0, stratify=names)
    onnx.save(mlp(13, 3, hidden=(16,)), tmp_path / "model.onnx")
    network = OnnxClassifier(str(tmp_path / "model.onnx"), epochs=15, random_state=0)
    grid = {"onnxclassifier__lr": [1e-5, 1e-2], "onnxclassifier__trainable": ["head", "all"]}
    search = GridSearchCV(make_pipeline(StandardScaler(), network), grid, cv=3)
    search.fit(train_x, train_y)
    assert search.best_params_["onnxclassifier__lr"] == 1e-2
    ours = search.score(test_x, test_y)
    theirs = make_pipeline(StandardScaler(), LogisticRegression()).fit(train_x, train_y)
    assert ours >= 0.97
    assert ours >= theirs.score(test_x, test_y) - 0.03
    scaler, best = search.best_estimator_[0], search.best_estimator_[1]
    best.save(tmp_path / "tuned.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "tuned.onnx")
    scores = session.run(None, {"x": scaler.transform(test_x).astype(np.float32)})[0]
    assert (best.classes_[scores.argmax(1)] == search.predict(test_x)).all()


def test_diabetes_beside_ridge():
    x, y = load_diabetes(return_X_y=True)
    network = OnnxRegressor(lr=3e-3, epochs=30, random_state=0)
    ours = TransformedTargetRegressor(
        make_pipeline(StandardScaler(), network), transformer=StandardScaler()
    )
    score = cross_val_score(ours, x, y, cv=3).mean()
    assert score >= cross_val_score(Ridge(), x, y, cv=3).mean() - 0.02
    assert score >= 0.4


def test_pictures_are_given_the_shape_that_the_model_takes(tmp_path):
    models.write("cnn", tmp_path / "cnn.onnx")
    x, y = load_digits(return_X_y=True)
    network = OnnxClassifier(tmp_path / "cnn.onnx", lr=3e-3, epochs=3, random_state=0)
    assert network.fit(x[:600] / 16, y[:600]).score(x[600:900] / 16, y[600:900]) > 0.85


def test_a_model_for_other_classes_gets_a_new_head_when_asked():
    x, y = load_iris(return_X_y=True)
    ten = mlp(4, 10)
    with pytest.raises(
        ValueError, match="output 'y' has 10 columns, and the data ask for 3; new_head=True"
    ):
        OnnxClassifier(ten).fit(x, y)
    network = OnnxClassifier(ten, new_head=True, random_state=0).fit(x, y)
    assert network.score(x, y) > 0.9
    assert network.predict_proba(x).shape == (150, 3)


@pytest.mark.parametrize("tail", ["", "Sigmoid"])
def test_one_output_says_yes_or_no(tail):
    """Of logits and of probabilities alike, the probability of the second class."""
    x, y = load_iris(return_X_y=True)
    x, y = x[:100], np.array(["no", "yes"])[y[:100]]
    model = mlp(4, 1)
    if tail:
        model.graph.node[-1].output[0] = "z"
        model.graph.node.append(onnx.helper.make_node(tail, ["z"], ["y"]))
    network = OnnxClassifier(model, random_state=0).fit(x, y)
    shares = network.predict_proba(x)
    np.testing.assert_allclose(shares.sum(1), 1, rtol=1e-6)
    assert network.score(x, y) == 1
    assert shares[:50, 0].min() > 0.5


def test_a_pickled_estimator_answers_and_learns_on():
    x, y = load_iris(return_X_y=True)
    for network in (
        OnnxClassifier(random_state=0, epochs=3),
        OnnxRegressor(random_state=0, epochs=3),
    ):
        target = y if isinstance(network, OnnxClassifier) else x[:, 0]
        network.fit(x, target)
        copy = pickle.loads(pickle.dumps(network))
        np.testing.assert_allclose(copy.predict(x), network.predict(x), rtol=1e-6)
        before = copy.score(x, target)
        for _ in range(10):
            copy.partial_fit(x, target)
        assert copy.score(x, target) > before
        file = io.BytesIO(copy.network_.to_bytes())
        assert onnx.load(file).graph.node


def test_clones_are_unfitted_and_equal():
    network = OnnxClassifier(mlp(4, 3), lr=0.5)
    other = clone(network)
    assert other.lr == 0.5
    with pytest.raises(NotFittedError):
        other.predict(np.zeros((1, 4)))


def test_an_unknown_class_in_a_later_part_is_named():
    x, y = load_iris(return_X_y=True)
    network = OnnxClassifier().partial_fit(x[:100], y[:100])
    with pytest.raises(ValueError, match="y holds the class 2, which the first call did not name"):
        network.partial_fit(x, y)


SETTINGS = {
    "optimizer": "sgd", "lr": 0.5, "trainable": ["w1"], "schedule": "cosine", "clip_norm": 0.25, "dropout": 0.1,
    "freeze_bn": True, "threads": 1,
}  # fmt: skip


def test_every_setting_reaches_the_trainer(monkeypatch):
    given, fitted, real = {}, {}, estimators.Trainer

    class Watched(real):
        def __init__(self, source, **settings):
            given.update(settings)
            super().__init__(source, **settings)

        def fit(self, *rest, **settings):
            fitted.update(settings)
            return super().fit(*rest, **settings)

    monkeypatch.setattr(estimators, "Trainer", Watched)
    x, y = np.random.default_rng(0).normal(size=(20, 3)), np.arange(20.0)
    OnnxRegressor(**SETTINGS, loss="huber", epochs=2, batch_size=7, verbose=0, random_state=3).fit(
        x, y
    )
    assert {name: given[name] for name in SETTINGS} == SETTINGS
    assert (given["loss"], given["head"]) == ({"y": "huber"}, None)
    assert (fitted["epochs"], fitted["batch_size"], fitted["validation"], fitted["callbacks"]) == (
        2,
        7,
        None,
        [],
    )
    first = given["seed"]
    OnnxRegressor(random_state=3, epochs=1).fit(x, y)
    assert given["seed"] == first
    OnnxRegressor(random_state=4, epochs=1).fit(x, y)
    assert given["seed"] != first
    watch = OnnxRegressor(
        early_stopping=True, validation_fraction=0.3, n_iter_no_change=4, epochs=2
    )
    watch.fit(x, y)
    assert (fitted["validation"], fitted["callbacks"][0].patience) == (0.3, 4)
    watch.partial_fit(x, y)
    assert (fitted["validation"], fitted["callbacks"], fitted["epochs"]) == (None, [], 1)


def test_numbers_of_one_column_and_of_several():
    x = np.random.default_rng(0).normal(size=(30, 3)).astype(np.float32)
    one, two = x[:, 0], x[:, :2]
    for targets, shape in ((one, (30,)), (two, (30, 2))):
        network = OnnxRegressor(random_state=0, epochs=60, lr=0.02).fit(x, targets)
        assert network.predict(x).shape == shape
        assert network.score(x, targets) > 0.9
    with pytest.warns(Warning, match="column-vector"):
        column = OnnxRegressor(random_state=0, epochs=60, lr=0.02).fit(x, one[:, None])
    np.testing.assert_array_equal(
        column.predict(x), OnnxRegressor(random_state=0, epochs=60, lr=0.02).fit(x, one).predict(x)
    )


def test_rows_in_the_shape_of_the_model():
    def shape(*dims, features=12):
        value = ir.Value(name="x", shape=ir.Shape(["N", *dims]))
        return row_shape(ir.Model(ir.Graph([value], [], nodes=[]), ir_version=8), features)

    assert shape(12) == (12,)
    assert shape(1, 3, 4) == (1, 3, 4)
    assert shape("F") == (12,)
    assert shape(3, "T") == (3, 4)
    assert shape() == (12,)
    for wrong in ((11,), (5, "T"), ("A", "B"), (2, 3)):
        with pytest.raises(ValueError, match="a row of X has 12 numbers, and the model takes"):
            shape(*wrong)
    two = [ir.Value(name=n, shape=ir.Shape(["N", 2])) for n in "ab"]
    with pytest.raises(
        ValueError, match=r"the model has 2 inputs \(a, b\), and a row of X is one array"
    ):
        row_shape(ir.Model(ir.Graph(two, [], nodes=[]), ir_version=8), 2)


def test_a_new_network_is_drawn_as_pytorch_draws():
    made = {
        t.name: onnx.numpy_helper.to_array(t) for t in mlp(16, 3, (50, 4), seed=1).graph.initializer
    }
    assert {n: a.shape for n, a in made.items()} == {
        "w1": (16, 50), "b1": (50,), "w2": (50, 4), "b2": (4,), "w3": (4, 3), "b3": (3,),
    }  # fmt: skip
    assert 0.24 < np.abs(made["w1"]).max() <= 0.25
    assert np.abs(made["b2"]).max() <= 50**-0.5
    assert [n.op_type for n in mlp(16, 3, (50, 4)).graph.node] == [
        "Gemm",
        "Relu",
        "Gemm",
        "Relu",
        "Gemm",
    ]
    again, other = (
        onnx.numpy_helper.to_array(mlp(16, 3, seed=s).graph.initializer[0]) for s in (0, 2)
    )
    assert np.array_equal(again, onnx.numpy_helper.to_array(mlp(16, 3).graph.initializer[0]))
    assert not np.array_equal(again, other)


def test_one_class_and_too_many_are_refused():
    x = np.zeros((6, 2), np.float32)
    with pytest.raises(
        ValueError, match="the rows are all of one class, 3: a classifier needs two"
    ):
        OnnxClassifier().fit(x, np.full(6, 3))
    with pytest.raises(
        ValueError, match="the model's output 'y' has 2 columns, and the data ask for 3"
    ):
        OnnxClassifier(mlp(2, 2)).fit(x, np.arange(6) % 3)
    with pytest.raises(ValueError, match="has 1 columns, and the data ask for 3"):
        OnnxClassifier(mlp(2, 1)).fit(x, np.arange(6) % 3)


def test_early_stopping_stops():
    x, y = load_iris(return_X_y=True)
    network = OnnxClassifier(
        epochs=200, lr=0.05, early_stopping=True, n_iter_no_change=2, random_state=0
    ).fit(x, y)
    assert network.n_iter_ < 200
    assert "val_loss" in network.history_.epochs[0]


def test_the_page_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", (DOCS / "scikit-learn.md").read_text(), re.S)
    names: dict = {}
    for block in blocks:
        exec(block, names)
    assert names["search"].best_score_ > 0.9
    assert (tmp_path / "tuned.onnx").exists()
