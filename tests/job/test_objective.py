"""The losses that a job asks the Trainer for, from its settings alone."""

from __future__ import annotations

import types

import pytest

from onnxgrad.errors import ConfigError
from onnxgrad.job.config import Config
from onnxgrad.job.objective import Objective
from onnxgrad.train.losses import CrossEntropy
from onnxgrad.train.row_losses import RowWeighted, SoftCrossEntropy


def losses(named: dict[str, str], **settings):
    prepared = types.SimpleNamespace(
        losses=named, tagged=False, matched=types.SimpleNamespace(kinds={"pictures"})
    )
    return Objective(prepared, Config(**settings), None).losses()


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
