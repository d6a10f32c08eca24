"""The losses that a job asks the Trainer for, from its settings alone."""

from __future__ import annotations

import types

import numpy as np
import pytest

from onnxgrad.data.matched import Matched
from onnxgrad.data.table import Table
from onnxgrad.errors import ConfigError
from onnxgrad.job.config import Config
from onnxgrad.job.objective import Objective
from onnxgrad.train.losses import CrossEntropy
from onnxgrad.train.row_losses import RowWeighted, SoftCrossEntropy


def objective(named, rows=None, classes=(), shape=("N", 3), columns=None, **settings) -> Objective:
    matched = Matched(
        {}, targets=dict.fromkeys(named or {}, tuple(columns or {})), classes=list(classes)
    )
    prepared = types.SimpleNamespace(
        losses=named, tagged=False, matched=matched, table=Table("d.csv", columns) if columns else None,
        judged=lambda output: types.SimpleNamespace(shape=shape),
    )  # fmt: skip
    return Objective(prepared, Config(**settings), rows)


def losses(named, **given):
    return objective(named, **given).losses()


def test_a_plain_loss_is_its_name():
    assert losses({"y": "mse"}) == "mse"
    assert losses({"y": "mse"}, model_output="y") == {"y": "mse"}
    assert losses({"y": "mse"}, loss="y=mse") == {"y": "mse"}
    assert losses({"y": "mse", "z": "cross_entropy"}) == {"y": "mse", "z": "cross_entropy"}


def test_settings_of_classes():
    assert losses({"y": "cross_entropy"}, label_smoothing=0.1) == {
        "y": CrossEntropy(label_smoothing=0.1)
    }
    assert losses({"y": "cross_entropy"}, ignore_index="7") == {"y": CrossEntropy(ignore_index=7)}
    both = losses({"y": "cross_entropy", "z": "mse"}, label_smoothing=0.1)
    assert both == {"y": CrossEntropy(label_smoothing=0.1), "z": "mse"}


def test_mixed_pictures_have_shares_of_classes_and_numbers_stay_numbers():
    found = losses({"y": "cross_entropy", "z": "mse"}, augment="mixup", label_smoothing=0.1)
    assert found == {"y": SoftCrossEntropy(label_smoothing=0.1), "z": "mse"}
    assert losses({"z": "mse"}, augment="mixup") == "mse"
    assert losses({"y": "cross_entropy"}, augment="flip") == "cross_entropy"
    with pytest.raises(ConfigError, match="mixup needs the loss cross_entropy, and it is nll"):
        losses({"y": "nll"}, augment="mixup")


def test_weights_of_rows():
    found = losses({"y": "cross_entropy"}, sample_weights="w", label_smoothing=0.1)
    assert found == {"y": RowWeighted(CrossEntropy(label_smoothing=0.1))}
    assert isinstance(losses({"y": "mse"}, sample_weights="w")["y"], RowWeighted)


def weights(text: str, **given) -> tuple[list[float], list[str]]:
    made = objective({"y": "cross_entropy"}, class_weights=text, **given)
    return [*made.losses()["y"].weight], [n.text for n in made.notes]


ANIMALS = ("cat", "dog", "eel")


def test_weights_of_classes_as_given():
    assert weights("1,2,0.5") == ([1, 2, 0.5], [])
    assert weights("dog=2,eel=0.5", classes=ANIMALS) == ([1, 2, 0.5], [])
    assert weights("1=4") == ([1, 4, 1], [])
    assert weights("0=4", shape=("N", "C"), columns={"label": np.array([0, 3, 1])}) == (
        [4, 1, 1, 1],
        [],
    )


@pytest.mark.parametrize("text", ["1,2", "cow=3", "cat=much", "cat", "1,2,x"])
def test_other_weights_are_refused(text):
    with pytest.raises(ConfigError) as caught:
        weights(text, classes=ANIMALS)
    assert str(caught.value) == (
        f"--class-weights is {text!r}, expected balanced, 3 numbers, or name=number for some of cat, dog, eel"
    )


def test_balanced_weights_are_those_of_scikit_learn():
    """n / (classes · n_c), of the rows that train; a class that nobody has counts nothing."""
    label = np.array([0, 0, 0, 1, 1, 2, 2, 2])
    found, notes = weights("balanced", columns={"label": label}, rows=np.arange(6))
    assert found == pytest.approx([6 / 9, 6 / 6, 6 / 3])
    assert notes == ["class weights, balanced: 0 0.667, 1 1, 2 2"]
    found, notes = weights("balanced", columns={"label": label}, shape=("N", 4))
    assert found == pytest.approx([8 / 9, 8 / 6, 8 / 9, 0])
    words = np.array([*"cdcc", "?"])
    found, notes = weights("balanced", columns={"label": words}, classes=[*"cde"])
    assert found == pytest.approx([4 / 6, 4 / 2, 0])
    assert notes == ["class weights, balanced: c 0.667, d 2, e 0"]
    found, _ = weights("balanced", columns={"label": label}, ignore_index="2")
    assert found == pytest.approx([5 / 6, 5 / 4, 0])
    many = {"label": np.arange(9)}
    assert weights("balanced", columns=many, shape=("N", 9))[1][0].endswith("6 1, 7 1 …")
    assert weights("balanced", columns={"label": np.arange(8)}, shape=("N", 8))[1][0].endswith(
        "6 1, 7 1"
    )
    with pytest.raises(ConfigError, match="balanced needs labels of classes"):
        weights("balanced", columns={"label": label + 0.5})
    assert weights("balanced", columns={"label": label * 1.0})[0] == pytest.approx(
        [8 / 9, 8 / 6, 8 / 9]
    )


def test_what_a_yes_counts():
    columns = {"a": np.array([1.0, 0, 0, 0]), "b": np.array([1.0, 1, 0, 0]), "c": np.zeros(4)}
    made = objective({"y": "bce"}, class_weights="balanced", columns=columns)
    assert made.losses()["y"].pos_weight == pytest.approx([3, 1, 1])
    assert (
        made.notes[0].text == "class weights, balanced: a yes counts 3, 1, 1 times as much as a no"
    )
    words = objective({"y": "bce"}, class_weights="balanced", classes=["no", "yes"],
                      columns={"a": np.array(["no", "yes", "no"])})  # fmt: skip
    assert words.losses()["y"].pos_weight == pytest.approx([2])
    assert objective({"y": "bce"}, class_weights="3,4").losses()["y"].pos_weight == (3, 4)
    with pytest.raises(
        ConfigError, match="expected balanced, or what a yes counts, a number for each column"
    ):
        objective({"y": "bce"}, class_weights="much").losses()


REFUSED = [
    (
        {"y": "mse"},
        {"label_smoothing": 0.1},
        "--label-smoothing is for losses of classes, not for mse",
    ),
    ({"y": "mse"}, {"ignore_index": "3"}, "--ignore-index is for losses of classes, not for mse"),
    ({"y": "mse"}, {"class_weights": "balanced"}, "--class-weights is for classes, not for mse"),
    ({"y": "nothing"}, {}, "--loss is 'nothing', expected one of "),
    (
        None,
        {"label_smoothing": 0.1},
        "--label-smoothing is for a loss of targets, and the model computes its own",
    ),
    (
        None,
        {"sample_weights": "w"},
        "--sample-weights is for a loss of targets, and the model computes its own",
    ),
]


@pytest.mark.parametrize(("named", "settings", "said"), REFUSED, ids=[r[2] for r in REFUSED])
def test_what_does_not_fit_is_refused(named, settings, said):
    with pytest.raises(ConfigError) as caught:
        losses(named, **settings)
    assert str(caught.value).startswith(said)
