"""Data that does not fit is refused before the step that would use it, with the key and the row."""

from __future__ import annotations

import numpy as np
import pytest
from train import problems

from onnxgrad import Trainer
from onnxgrad.errors import DataError

X, Y = (np.concatenate(p) for p in zip(*problems.mlp().batches[:2], strict=True))
NAN = X.copy()
NAN[17, 3] = np.nan


def label(value: int, row: int = 30) -> np.ndarray:
    y = Y.copy()
    y[row] = value
    return y


BAD = {
    "NaN": (NAN, Y, "input 'x' holds NaN in row 17"),
    "a label too large": (X, label(5), "target 'target' holds the label 5 in row 30, expected 0 to 4"),
    "a negative label": (X, label(-1), "target 'target' holds the label -1 in row 30, expected 0 to 4"),
    "fewer labels": (X, Y[:40], "'target' has 40 rows, and 'x' has 48"),
    "columns": (X[:, :7], Y, "input 'x' has shape [16, 7], expected [N, 16]"),
    "rank": (X[None], Y[:1], "input 'x' has shape [1, 48, 16], expected [N, 16]"),
    "integers": (
        X.astype(np.int32), Y,
        "input 'x' has type int32, expected float32; "
        "convert it with .astype('float32') if that is what it means",
    ),
    "float labels": (
        X, Y.astype(np.float32),
        "target 'target' has type float32, expected int64; "
        "convert it with .astype('int64') if that is what it means",
    ),
    "text": (X.astype(str), Y, "input 'x' has type <U32, expected float32"),
    "a wrong name": ({"images": X}, Y, "input 'x' is missing; the batch has 'images', 'target'"),
    "one name too many": (
        {"x": X, "id": Y}, Y, "the batch has 'id', which is not one of 'x', 'target'",
    ),
    "no labels": ({"x": X}, None, "target 'target' is missing; the batch has 'x'"),
    "labels as scores": (X, np.eye(5, dtype=int)[Y] * 2, "target 'target' has shape [16, 5], expected [N]"),
    "nothing": (X[:0], Y[:0], "the data has no rows"),
    "a number": (np.float32(3), Y, "'x' is a single number, expected one row per sample"),
}  # fmt: skip


@pytest.mark.parametrize("kind", BAD)
def test_bad_arrays(kind):
    x, y, message = BAD[kind]
    trainer = Trainer(problems.mlp().model(), loss="cross_entropy")
    before = trainer.get_weights(flat=True)
    with pytest.raises(DataError) as caught:
        trainer.fit(x, y, batch_size=16, shuffle=False)
    assert str(caught.value) == message
    if kind == "NaN":  # the first batch was good
        assert trainer.steps == 1
    elif "label" not in kind:
        np.testing.assert_array_equal(trainer.get_weights(flat=True), before)
    with pytest.raises(DataError):
        trainer.evaluate(x, y, batch_size=16)


def test_shuffled_rows_are_named_as_in_the_data():
    trainer = Trainer(problems.mlp().model(), loss="cross_entropy")
    with pytest.raises(DataError, match=r"input 'x' holds NaN in row 17$"):
        trainer.fit(NAN, Y, batch_size=16)


def test_rows_of_streams_are_counted_by_batch():
    trainer = Trainer(problems.mlp().model(), loss="cross_entropy")
    batches = [(X[:16], Y[:16]), (NAN[16:32], Y[16:32])]
    with pytest.raises(DataError, match="input 'x' holds NaN in row 1 of batch 1"):
        trainer.fit(batches)


def test_a_batch_of_another_kind():
    trainer = Trainer(problems.mlp().model(), loss="cross_entropy")
    with pytest.raises(DataError, match=r"a batch is a int, expected a dict by name or a pair"):
        trainer.fit([3, 4])
    with pytest.raises(ValueError, match="the batches come from an iterator, which can be used"):
        trainer.fit(iter([(X, Y)]))


def test_a_fixed_batch_size_is_explained():
    model = problems.mlp().model()
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 4
    trainer = Trainer(model, loss="cross_entropy")
    with pytest.raises(DataError) as caught:
        trainer.fit(X, Y, batch_size=16)
    assert str(caught.value) == (
        "input 'x' has shape [16, 16], expected [4, 16]; "
        "the model's batch size is fixed: use batch_size=4"
    )


def test_infinity_is_allowed_and_ignored_labels_are():
    from onnxgrad.train.losses import CrossEntropy

    trainer = Trainer(problems.mlp().model(), loss=CrossEntropy(ignore_index=-100))
    trainer.step(X, label(-100))
    with pytest.raises(
        DataError, match="the label -1 in row 30 of batch 1, expected 0 to 4 or -100"
    ):
        trainer.step(X, label(-1))
