"""What the pooling, loss, dropout, resizing and transposed-convolution gradients refuse, on both hosts."""

from __future__ import annotations

import numpy as np
import pytest
from refusals import assert_both_hosts_refuse


def a(*shape):
    return np.ones(shape, np.float32)


def ints(*values, dtype=np.int64):
    return np.array(values, dtype)


LOSS = dict(dY=a(), log_prob=a(2, 3))
WRONG = [
    ("MaxPoolGrad", dict(dY=a(1, 2, 2), Indices=ints([[0, 1], [4, 9]]), shape=ints(1, 2, 4)), {},
     "MaxPoolGrad: input Indices has the value 9 at [0, 1, 1], expected 4..7, the places of its channel in X"),
    ("MaxPoolGrad", dict(dY=a(1, 2, 2), Indices=ints([[0, -1], [4, 5]], dtype=np.int32), shape=ints(1, 2, 4)), {},
     "MaxPoolGrad: input Indices has the value -1 at [0, 0, 1], expected 0..3, the places of its channel in X"),
    ("MaxPoolGrad", dict(dY=a(1, 2, 2), Indices=ints([[0, 1], [4, 5]]), shape=ints(1, 3, 4)), {},
     "MaxPoolGrad: input shape is [1, 3, 4], expected 3 dims that begin with [1, 2] (from dY)"),
    ("AveragePoolGrad", dict(dY=a(1, 2, 3), shape=ints(1, 2, 8)), dict(kernel_shape=[2], strides=[2]),
     "AveragePoolGrad: input dY has shape [1, 2, 3], expected [1, 2, 4] (what the windows give for shape [1, 2, 8])"),
    ("AveragePoolGrad", dict(dY=a(1, 2, 3), shape=ints(1, 2, 8)), {}, "AveragePoolGrad: kernel_shape is missing"),
    ("MaxPoolTraining", dict(X=a(1, 2, 8)), {}, "MaxPoolTraining: kernel_shape is missing"),
    ("MaxPoolTraining", dict(X=a(1, 2, 8)), dict(kernel_shape=[2, 2]),
     "MaxPoolTraining: kernel_shape is [2, 2], expected 1 numbers (X has shape [1, 2, 8])"),
    ("MaxPoolTraining", dict(X=a(1, 1, 4)), dict(kernel_shape=[1 << 31]),
     "MaxPoolTraining: kernel_shape is [2147483648], expected numbers of at most 16777216"),
    ("MaxPoolTraining", dict(X=a(1, 2)), dict(kernel_shape=[2]),
     "MaxPoolTraining: input X has shape [1, 2], expected one to three spatial dims"),
    ("MaxPoolTraining", dict(X=a(1, 1, 2, 2, 2, 2)), dict(kernel_shape=[2, 2, 2, 2]),
     "MaxPoolTraining: input X has shape [1, 1, 2, 2, 2, 2], expected one to three spatial dims"),
    ("MaxPoolTraining", dict(X=a(1, 2, 8)), dict(kernel_shape=[2], strides=[0]),
     "MaxPoolTraining: strides is [0], expected numbers of at least 1"),
    ("MaxPoolTraining", dict(X=a(1, 2, 8)), dict(kernel_shape=[2], pads=[2, 0]),
     "MaxPoolTraining: window 0 along axis 2 covers padding only (X has shape [1, 2, 8])"),
    ("AveragePoolGrad", dict(dY=a(1, 2, 3), shape=ints(1, 2, 8)), dict(kernel_shape=[2, 2]),
     "AveragePoolGrad: kernel_shape is [2, 2], expected 1 numbers (dY has shape [1, 2, 3])"),
    ("AveragePoolGrad", dict(dY=a(1, 2, 3), shape=ints(1, 2, 8)), dict(kernel_shape=[2], strides=[0]),
     "AveragePoolGrad: strides is [0], expected numbers of at least 1"),
    ("SoftmaxCrossEntropyLossGrad", dict(**LOSS, label=ints(0, 3)), {},
     "SoftmaxCrossEntropyLossGrad: input label has the value 3 at [1], expected 0..2"),
    ("SoftmaxCrossEntropyLossGrad", dict(**LOSS, label=ints(0, -1, dtype=np.int32)), dict(ignore_index=-100),
     "SoftmaxCrossEntropyLossGrad: input label has the value -1 at [1], expected 0..2 or ignore_index = -100"),
    ("SoftmaxCrossEntropyLossGrad", dict(**LOSS, label=ints(0)), {},
     "SoftmaxCrossEntropyLossGrad: input label has shape [1], expected [2] (log_prob has shape [2, 3])"),
    ("SoftmaxCrossEntropyLossGrad", dict(**LOSS, label=ints(0, 1)), dict(reduction="none"),
     "SoftmaxCrossEntropyLossGrad: input dY has shape [], expected [2] (reduction is 'none')"),
    ("SoftmaxCrossEntropyLossGrad", dict(dY=a(2), log_prob=a(2, 3), label=ints(0, 1)), {},
     "SoftmaxCrossEntropyLossGrad: input dY has shape [2], expected a scalar for reduction 'mean'"),
    ("SoftmaxCrossEntropyLossGrad", dict(**LOSS, label=ints(0, 1), weight=a(2)), {},
     "SoftmaxCrossEntropyLossGrad: input weight has shape [2], expected [3] (one per class)"),
    ("SoftmaxCrossEntropyLossInternal", dict(scores=a(2, 3), labels=ints(0, 7)), {},
     "SoftmaxCrossEntropyLossInternal: input labels has the value 7 at [1], expected 0..2"),
    ("SoftmaxCrossEntropyLossInternal", dict(scores=a(2, 3), labels=ints(0, 1)), dict(output_type=10),
     "SoftmaxCrossEntropyLossInternal: output_type is 10, expected 1, the type of the other tensors (float32)"),
    ("SoftmaxCrossEntropyLossInternalGrad", dict(**LOSS, label=ints(0, 1), bias=a(5)), {},
     "SoftmaxCrossEntropyLossInternalGrad: input bias has shape [5], expected as many elements as log_prob of shape [2, 3]"),
    ("DropoutGrad", dict(dy=a(2), mask=np.ones(2, bool), ratio=np.float32(1)), {},
     "DropoutGrad: input ratio is 1, expected at least 0 and less than 1"),
    ("DropoutGrad", dict(dy=a(2), mask=np.ones(3, bool)), {},
     "DropoutGrad: input mask has shape [3], expected [shape...] with shape... = [2] (from dy)"),
    ("ResizeGrad", dict(dY=a(2, 3), X=a(2)), {},
     "ResizeGrad: input dY has shape [2, 3], expected as many dims as X of shape [2]"),
    ("ResizeGrad", dict(dY=a(2, 3), X=a(2, 9), scales=a(3)), {},
     "ResizeGrad: input scales has shape [3], expected [2] (X has shape [2, 9])"),
    ("ResizeGrad", dict(dY=a(2, 3), X=a(2, 9), scales=2 * a(2)), {},
     "ResizeGrad: input dY has shape [2, 3], expected about 4 along axis 0 (X has shape [2, 9], scale 2)"),
    ("ResizeGrad", dict(dY=a(2, 3), X=a(2, 9)), dict(axes=[2]),
     "ResizeGrad: axes is [2], expected numbers in -2..1 (X has shape [2, 9])"),
    ("ResizeGrad", dict(dY=a(2, 3), X=a(2, 9)), dict(coordinate_transformation_mode="tf_crop_and_resize"),
     "ResizeGrad: input roi is missing, expected it for tf_crop_and_resize"),
    ("BiasGeluGrad", dict(dY=a(2, 3), X=a(2, 3), B=a(2)), {},
     "BiasGeluGrad: input B has shape [2], expected [C] with C = 3 (from dY)"),
    ("ConvTransposeGrad", dict(dY=a(1, 4, 9, 9), X=a(1, 3, 5, 5), W=a(3, 4, 2, 2)), dict(strides=[2, 2]),
     "ConvTransposeGrad: input dY has spatial dims [9, 9], expected [10, 10] (X [5, 5], kernel [2, 2], strides [2, 2], "
     "dilations [1, 1], pads [0, 0, 0, 0], auto_pad NOTSET)"),
    ("ConvTransposeGrad", dict(dY=a(1, 4, 6, 6), X=a(1, 3, 5, 5), W=a(3, 4, 2, 2)), dict(group=2),
     "ConvTransposeGrad: group is 2, expected a divisor of C = 3 (from X)"),
    ("ConvTransposeGrad", dict(dY=a(1, 4, 6, 6), X=a(1, 2, 5, 5), W=a(2, 4, 2, 2)), dict(group=2),
     "ConvTransposeGrad: input W has 4 filters per group, expected M / group = 4 / 2 (M from dY)"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "inputs", "attributes", "text"), WRONG, ids=[w[3] for w in WRONG])
def test_both_hosts_refuse_with_the_same_text(name, inputs, attributes, text):
    assert_both_hosts_refuse(name, inputs, attributes, text)
