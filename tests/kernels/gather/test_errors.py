"""What the gathering gradients refuse, with the value and its place, on both hosts and before anything is written."""

from __future__ import annotations

import numpy as np
import pytest
from refusals import assert_both_hosts_refuse

from onnxgrad import ContractError, kernels


def ints(*values, dtype=np.int64):
    return np.array(values, dtype)


def floats(*shape):
    return np.ones(shape, np.float32)


WRONG = [
    ("GatherGrad", dict(shape=ints(5, 3), indices=ints(0, 5), dY=floats(2, 3)), {},
     "GatherGrad: input indices has the value 5 at [1], expected -5..4"),
    ("GatherGrad", dict(shape=ints(5, 3), indices=ints([0, -6], [1, 2], dtype=np.int32), dY=floats(2, 2, 3)), {},
     "GatherGrad: input indices has the value -6 at [0, 1], expected -5..4"),
    ("GatherGrad", dict(shape=ints(0, 3), indices=ints(0), dY=floats(1, 3)), {},
     "GatherGrad: input indices has the value 0 at [0], expected no index into an axis of size 0"),
    ("GatherGrad", dict(shape=ints(5, 3), indices=ints(0, 4), dY=floats(2, 4)), {},
     "GatherGrad: input dY has shape [2, 4], expected [2, 3] (shape is [5, 3], indices have shape [2], axis is 0)"),
    ("GatherGrad", dict(shape=ints(5, 3), indices=ints(0, 4), dY=floats(2, 3)), dict(axis=2),
     "GatherGrad: axis is 2, expected -2..1 for shape [5, 3]"),
    ("GatherGrad", dict(shape=ints(5, -3), indices=ints(0, 4), dY=floats(2, 3)), {},
     "GatherGrad: input shape is [5, -3], expected no negative dim"),
    ("GatherGrad", dict(shape=ints(2**62, 4), indices=ints(0), dY=floats(1, 4)), {},
     "GatherGrad: input shape is [4611686018427387904, 4], expected at most 2^38 elements"),
    ("SliceGrad", dict(dY=floats(1, 1), shape=ints(2**33, 2**33), starts=ints(0, 0), ends=ints(1, 1)), {},
     "SliceGrad: input shape is [8589934592, 8589934592], expected at most 2^38 elements"),
    ("GatherElementsGrad", dict(dY=floats(1, 2), shape=ints(5, 3), indices=ints([4, 9])), {},
     "GatherElementsGrad: input indices has the value 9 at [0, 1], expected -5..4"),
    ("GatherElementsGrad", dict(dY=floats(1, 2), shape=ints(5), indices=ints([4, 1])), {},
     "GatherElementsGrad: input indices has shape [1, 2], expected as many dims as shape, which is [5]"),
    ("GatherElementsGrad", dict(dY=floats(1, 4), shape=ints(5, 3), indices=ints([4, 1, 0, 0])), {},
     "GatherElementsGrad: input indices has shape [1, 4], expected dims of at most [5, 3] beside axis 0"),
    ("GatherElementsGrad", dict(dY=floats(2, 2), shape=ints(5, 3), indices=ints([4, 1])), {},
     "GatherElementsGrad: input indices has shape [1, 2], expected [out...] with out... = [2, 2] (from dY)"),
    ("GatherNDGrad", dict(shape=ints(5, 3), indices=ints([4, 3]), update=floats(1)), {},
     "GatherNDGrad: input indices has the value 3 at [0, 1], expected -3..2 for axis 1 of shape [5, 3]"),
    ("GatherNDGrad", dict(shape=ints(5, 3), indices=ints([4, 3, 0]), update=floats(1)), {},
     "GatherNDGrad: input indices has shape [1, 3], expected a last dim of 1..2 (shape is [5, 3], batch_dims is 0)"),
    ("GatherNDGrad", dict(shape=ints(5, 3), indices=ints([4]), update=floats(1, 2)), {},
     "GatherNDGrad: input update has shape [1, 2], expected [1, 3] (shape is [5, 3], indices have shape [1, 1], batch_dims is 0)"),
    ("GatherNDGrad", dict(shape=ints(5, 3), indices=ints([1]), update=floats(1)), dict(batch_dims=2),
     "GatherNDGrad: batch_dims is 2, expected 0..1 (shape is [5, 3], indices have shape [1, 1])"),
    ("GatherNDGrad", dict(shape=ints(5, 3), indices=ints([1]), update=floats(1)), dict(batch_dims=1),
     "GatherNDGrad: input indices has shape [1, 1], expected it to begin with the batch dims of shape [5, 3]"),
    ("SliceGrad", dict(dY=floats(2), shape=ints(5), starts=ints(1), ends=ints(4)), {},
     "SliceGrad: input dY has shape [2], expected [3] (what the slice takes of shape [5])"),
    ("SliceGrad", dict(dY=floats(2), shape=ints(5), starts=ints(1), ends=ints(4), axes=ints(1)), {},
     "SliceGrad: input axes has the value 1 at [0], expected -1..0 for shape [5]"),
    ("SliceGrad", dict(dY=floats(2), shape=ints(5), starts=ints(1), ends=ints(4), axes=ints(0), steps=ints(0)), {},
     "SliceGrad: input steps has the value 0 at [0], expected any other number"),
    ("SliceGrad", dict(dY=floats(2, 2), shape=ints(5, 5), starts=ints(1, 1), ends=ints(3, 3), axes=ints(0, -2)), {},
     "SliceGrad: input axes names axis 0 twice"),
    ("SliceGrad", dict(dY=floats(2), shape=ints(5), starts=ints(1, 1), ends=ints(4, 4)), {},
     "SliceGrad: input starts has 2 elements, expected at most one per dim of shape [5]"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "inputs", "attributes", "text"), WRONG, ids=[w[3] for w in WRONG])
def test_both_hosts_refuse_with_the_same_text(name, inputs, attributes, text):
    assert_both_hosts_refuse(name, inputs, attributes, text)


def test_nothing_is_written_when_an_index_is_out_of_range():
    out = np.full((5, 3), 7, np.float32)
    with pytest.raises(ContractError):
        kernels.gather_grad(ints(5, 3), ints(0, 5), floats(2, 3), out=out)
    assert (out == 7).all()
