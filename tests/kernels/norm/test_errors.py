"""What the normalisation gradients refuse, on both hosts."""

from __future__ import annotations

import numpy as np
import pytest
from refusals import assert_both_hosts_refuse


def a(*shape):
    return np.ones(shape, np.float32)


WRONG = [
    ("LayerNormalizationGrad", dict(Y_grad=a(2, 3, 4), X=a(2, 3, 4), scale=a(3), mean=a(2, 3, 1), inv_std_dev=a(2, 3, 1)), {},
     "LayerNormalizationGrad: input scale has shape [3], expected [4] (X has shape [2, 3, 4], axis is -1)"),
    ("LayerNormalizationGrad", dict(Y_grad=a(2, 3, 4), X=a(2, 3, 4), scale=a(3, 4), mean=a(2, 3, 1), inv_std_dev=a(2, 3, 1)), dict(axis=1),
     "LayerNormalizationGrad: input mean has shape [2, 3, 1], expected [2, 1, 1] (X has shape [2, 3, 4], axis is 1)"),
    ("LayerNormalizationGrad", dict(Y_grad=a(2, 3), X=a(2, 3), scale=a(3), mean=a(2), inv_std_dev=a(2)), dict(axis=2),
     "LayerNormalizationGrad: axis is 2, expected -2..1 for X of rank 2"),
    ("LayerNormalizationGrad", dict(Y_grad=a(2, 3), X=a(3, 2), scale=a(3), mean=a(2), inv_std_dev=a(2)), {},
     "LayerNormalizationGrad: input X has shape [3, 2], expected [shape...] with shape... = [2, 3] (from Y_grad)"),
    ("SimplifiedLayerNormalizationGrad", dict(Y_grad=a(2, 3), X=a(2, 3), scale=a(3), inv_std_var=a(3)), {},
     "SimplifiedLayerNormalizationGrad: input inv_std_var has shape [3], expected [2, 1] (X has shape [2, 3], axis is -1)"),
    ("InvertibleLayerNormalizationGrad", dict(Y_grad=a(2, 3), Y=a(2, 3), scale=a(3), bias=a(3), inv_std_var=a(1, 2)), {},
     "InvertibleLayerNormalizationGrad: input inv_std_var has shape [1, 2], expected [2, 1] (Y has shape [2, 3], axis is -1)"),
    ("InvertibleLayerNormalizationGrad", dict(Y_grad=a(), Y=a(), scale=a(), bias=a(), inv_std_var=a()), {},
     "InvertibleLayerNormalizationGrad: input Y has shape [], expected at least one dim"),
    ("BatchNormalizationGrad", dict(dY=a(2, 3, 4), X=a(2, 3, 4), scale=a(3), mean=a(4), variance=a(3)), dict(epsilon=1e-5),
     "BatchNormalizationGrad: input mean has shape [4], expected [C] with C = 3 (from dY)"),
    ("BatchNormalizationGrad", dict(dY=a(2), X=a(2), scale=a(3), mean=a(3), variance=a(3)), {},
     "BatchNormalizationGrad: input dY has shape [2], expected [N, C, size...]"),
    ("BatchNormInternal", dict(X=a(2, 3, 4), scale=a(3), B=a(2), input_mean=a(3), input_var=a(3)), {},
     "BatchNormInternal: input B has shape [2], expected [C] with C = 3 (from X)"),
    ("GroupNormalizationGrad", dict(dY=a(2, 6, 4), X=a(2, 6, 4), scale=a(6)), dict(num_groups=4),
     "GroupNormalizationGrad: num_groups is 4, expected a divisor of C = 6 (from dY)"),
    ("GroupNormalizationGrad", dict(dY=a(2, 6, 4), X=a(2, 6, 4), scale=a(6)), dict(num_groups=0),
     "GroupNormalizationGrad: num_groups is 0, expected at least 1"),
    ("GroupNormalizationGrad", dict(dY=a(2, 6, 4), X=a(2, 6, 4), scale=a(2)), dict(num_groups=3),
     "GroupNormalizationGrad: input scale has shape [2], expected [C] or [num_groups] with C = 6 (from dY), num_groups = 3"),
    ("InstanceNormalizationGrad", dict(dY=a(2, 6, 4), X=a(2, 6, 4), scale=a(5)), {},
     "InstanceNormalizationGrad: input scale has shape [5], expected [C] with C = 6 (from dY)"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "inputs", "attributes", "text"), WRONG, ids=[w[3] for w in WRONG])
def test_both_hosts_refuse_with_the_same_text(name, inputs, attributes, text):
    assert_both_hosts_refuse(name, inputs, attributes, text)
