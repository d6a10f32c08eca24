"""What a job works out from a model and a table: classes, batches, metrics, targets."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from onnxgrad.data.forms import Forms
from onnxgrad.data.matched import Feed, Matched
from onnxgrad.data.ragged import Ragged
from onnxgrad.data.table import Table
from onnxgrad.errors import ConfigError, DataError
from onnxgrad.job.prepare import Opened, Prepared


def value(name, *shape) -> ir.Value:
    return ir.Value(name=name, shape=ir.Shape(shape), type=ir.TensorType(ir.DataType.FLOAT))


def model(inputs=(("x", "N", 4),), outputs=(("y", "N", 3),)) -> ir.Model:
    graph = ir.Graph([value(*i) for i in inputs], [value(*o) for o in outputs], nodes=[])
    return ir.Model(graph, ir_version=8)


def prepared(losses, columns, classes=(), targets=None, **form) -> Prepared:
    table = Table("d.csv", {"x": np.zeros((6, 4), np.float32), **columns})
    targets = (
        {n: (c,) for n, c in zip(losses or {}, columns, strict=False)}
        if targets is None
        else targets
    )
    matched = Matched({"x": Feed(["x"], None, None)}, targets=targets, classes=list(classes))
    return Prepared("m.onnx", model(**form), table, matched, losses, [])


LABELS = {"label": np.arange(6) % 3}


def opened(columns, target="label", classes=()) -> Opened:
    aim = Matched({}, targets={"": (target,)} if target else {}, classes=list(classes))
    losses = {"y": "cross_entropy"}
    return Opened("m.onnx", model(), model(), Table("d.csv", columns), (), aim, losses, Forms(), {})


def test_how_many_classes_are_meant():
    assert opened(LABELS).class_count("1") == 1
    assert opened(LABELS).class_count("12") == 12
    assert opened(LABELS).class_count("auto") == 3
    assert opened(LABELS, classes="abcd").class_count("auto") == 4
    for text in ("0", "-1", "few", "1.5"):
        with pytest.raises(ConfigError, match="expected auto or a number of classes"):
            opened(LABELS).class_count(text)
    with pytest.raises(ConfigError, match="--classes auto needs a target: name it with --target"):
        opened(LABELS, target="").class_count("auto")
    for bad in (np.array([0.5, 1]), np.array([-1, 2])):
        with pytest.raises(ConfigError, match="the target 'label' holds no class numbers"):
            opened({"label": bad}).class_count("auto")


def test_a_column_of_classes():
    assert opened(LABELS).labelled
    assert not opened({"label": np.zeros((6, 2), int)}).labelled


@pytest.mark.parametrize("count", [4, 8, 9])
def test_more_classes_than_the_model_has_are_refused(count):
    names = [f"c{i}" for i in range(count)]
    made = prepared({"y": "cross_entropy"}, {"label": np.array(names)}, names)
    with pytest.raises(DataError) as caught:
        made.goals(("target",))
    listed = ", ".join(names[:8]) + (" …" if count > 8 else "")
    assert str(caught.value) == (
        f"d.csv: the target 'label' has {count} classes ({listed}), and output 'y' of the model has 3. A new last "
        "layer for them: --classes auto"
    )


def test_fewer_classes_than_the_model_has_are_a_hint():
    def hints(losses, classes):
        return [(n.text, n.change) for n in prepared(losses, LABELS, classes).few_classes()]

    said = (
        "output 'y' has 3 classes, and the data have 2",
        "--classes auto makes a new last layer for them",
    )
    assert hints({"y": "cross_entropy"}, "ab") == [said]
    assert hints({"y": "cross_entropy"}, "abc") == []
    assert hints({"y": "cross_entropy"}, "a") == []
    assert hints({"y": "mse"}, "ab") == []


def test_batches_of_the_size_that_the_model_fixes():
    assert prepared({"y": "mse"}, LABELS).batch_size(5) == (5, False)
    fixed = prepared({"y": "mse"}, LABELS, inputs=(("x", 8, 4),))
    assert fixed.batch_size(5) == (8, True)
    assert fixed.all_rows(("target",), 5).rows == 0, "six rows fill no batch of eight"
    assert prepared({"y": "mse"}, LABELS).all_rows(("target",), 4).rows == 6


def test_metrics_go_with_losses():
    one = prepared({"y": "cross_entropy"}, LABELS)
    assert one.metrics("") == ["accuracy"]
    assert one.metrics("f1, auc") == ["f1", "auc"]
    two = prepared({"y": "cross_entropy", "z": "mse"}, {**LABELS, "price": np.zeros(6)})
    assert [m.partition("=")[0] for m in two.metrics("")] == [
        "y",
        *["z"] * (len(two.metrics("")) - 1),
    ]
    assert prepared(None, {}).metrics("") == []


def test_targets_then_weights_of_rows():
    outputs = (("y", "N", 3), ("z", "N", 1))
    made = prepared(
        {"y": "cross_entropy", "z": "mse"}, {**LABELS, "price": np.zeros(6)}, outputs=outputs
    )
    first, second, third = made.goals(("a", "b", "c"), "label")
    assert (first.name, first.columns, first.labels, first.shares) == ("a", ("label",), True, 0)
    assert (second.name, second.columns, second.labels, second.column) == (
        "b",
        ("price",),
        False,
        True,
    )
    assert (third.name, third.columns) == ("c", ("label",))
    mixed = made.goals(("a", "b"), mixed=True)
    assert [g.shares for g in mixed] == [3, 0]
    wide = prepared({"y": "cross_entropy"}, LABELS, outputs=(("y", "N", "C"),))
    with pytest.raises(ConfigError, match="--augment mixup needs an output"):
        wide.goals(("a",), mixed=True)


def test_labels_of_words_are_tags_and_of_rows_are_not():
    lists = {"tags": Ragged([np.arange(n + 1) for n in range(6)])}
    assert prepared({"y": "cross_entropy"}, lists).tagged
    assert not prepared({"y": "mse"}, lists).tagged
    assert not prepared({"y": "cross_entropy"}, LABELS).tagged
    assert not prepared({"y": "mse"}, LABELS).tagged
    assert not prepared(None, {}).tagged
    assert not prepared({"y": "cross_entropy"}, LABELS, targets={}).tagged
