"""Shapes and attributes that a hostile file can hold: a sentence, soon, in both hosts, and no process that ends.

Each call runs in a child with little memory and little time: what would crash, hang or swallow the machine fails here.
"""

from __future__ import annotations

import ctypes
import functools
import json
import signal
import subprocess
import sys

import numpy as np
import pytest
from ort_models import node_model
from places import TESTS

import onnxgrad
from onnxgrad import kernels
from onnxgrad.contracts import contracts

pytestmark = pytest.mark.xdist_group("bounds")  # one child per host does for all of them
MOST_BYTES, MOST_SECONDS = 4 << 30, 120


def f32(*shape):
    return np.ones(shape, np.float32)


def i64(*values):
    return np.array(values, np.int64)


def ones(rank, *last):
    """A shape of `rank` dims, 1 except for the last ones."""
    return (1,) * (rank - len(last)) + last


RANKS = [33, 37, 64]
REFUSED = {
    **{
        f"GatherGrad of rank {r}": (
            "GatherGrad",
            dict(shape=i64(*ones(r)), indices=np.zeros(ones(r), np.int64), dY=f32(*ones(r))),
            {},
            "expected at most 32 dims",
        )
        for r in RANKS
    },
    **{
        f"GatherNDGrad of rank {r}": (
            "GatherNDGrad",
            dict(shape=i64(*ones(r)), indices=np.zeros(ones(r), np.int64), update=f32(*ones(r))),
            {},
            "expected at most 32 dims",
        )
        for r in RANKS
    },
    **{
        f"{name} of rank {r}": (
            name,
            dict(dY=f32(*ones(r)), X=f32(*ones(r)), W=f32(*ones(r))),
            {},
            f"input dY has shape {list(ones(r))}, expected at most 32 dims",
        )
        for r in RANKS
        for name in ("ConvGrad", "ConvTransposeGrad")
    },
    **{
        f"ConvTraining of rank {r}": (
            "ConvTraining",
            dict(X=f32(*ones(r)), W=f32(*ones(r))),
            {},
            f"input X has shape {list(ones(r))}, expected at most 32 dims",
        )
        for r in RANKS
    },
    "2^60 rows of width 0": (
        "GatherGrad",
        dict(shape=i64(2**60, 0), indices=i64(0), dY=f32(1, 0)),
        {},
        f"input shape is [{2**60}, 0], expected at most 2^28 as the product of the dims beside a 0",
    ),
    "2^29 rows of width 0": (
        "GatherGrad",
        dict(shape=i64(2**29, 0), indices=i64(0), dY=f32(1, 0)),
        {},
        f"input shape is [{2**29}, 0], expected at most 2^28 as the product of the dims beside a 0",
    ),
    "more elements than a tensor can have": (
        "SliceGrad",
        dict(dY=f32(0, 2), shape=i64(2**33, 2**33), starts=i64(0), ends=i64(0)),
        {},
        f"input shape is [{2**33}, {2**33}], expected at most 2^38 elements",
    ),
    "more memory than a machine has": (
        "SliceGrad",
        dict(dY=f32(1), shape=i64(2**38), starts=i64(0), ends=i64(1)),
        {},
        f"output dX would have shape [{2**38}] and make 1048576 MiB of outputs, expected at most the",
    ),
    "more working memory than a machine has": (
        "GatherGrad",
        dict(shape=i64(2**38), indices=i64(0), dY=f32(1)),
        {},
        "needs 2097153 MiB of working memory, expected at most",
    ),
    "a window of 2^31": (
        "AveragePoolGrad",
        dict(dY=f32(1, 1, 1), shape=i64(1, 1, 1)),
        dict(kernel_shape=[2**31], pads=[2**30, 2**31 - 2**30 - 1]),
        f"kernel_shape is [{2**31}], expected numbers of at most {2**24}",
    ),
    "windows that take too much together": (
        "AveragePoolGrad",
        dict(dY=f32(1, 1, 20_001), shape=i64(1, 1, 20_000)),
        dict(kernel_shape=[20_000], pads=[10_000, 10_000]),
        "expected windows that take at most 67108864 elements along an axis, all together",
    ),
    "a pooling window of 2^72 elements": (
        "MaxPoolTraining",
        dict(X=f32(1, 1, 1, 1, 1)),
        dict(kernel_shape=[2**24] * 3, auto_pad="SAME_UPPER"),
        f"kernel_shape is [{2**24}, {2**24}, {2**24}], expected at most 1048576 elements",
    ),
    "a scale of 1e-18": (
        "ResizeGrad",
        dict(dY=f32(1, 1, 1), X=f32(1, 1, 1), scales=np.float32([1, 1, 1e-18])),
        dict(mode="linear", antialias=1),
        "a scale of 1e-18 takes 2e+18 elements along an axis, expected at most 67108864",
    ),
    "more axes than dims": (
        "ResizeGrad",
        dict(dY=f32(1, 1), X=f32(1, 1)),
        dict(axes=[0] * 100),
        "axes is [0, 0",
    ),
    "a stride beyond all bounds": (
        "ConvGrad",
        dict(dY=f32(1, 1, 1), X=f32(1, 1, 4), W=f32(1, 1, 1)),
        dict(strides=[2**62]),
        f"strides is [{2**62}], expected numbers of at most {2**24}",
    ),
    "groups beyond all bounds": (
        "ConvTransposeGrad",
        dict(dY=f32(1, 0, 1), X=f32(1, 0, 1), W=f32(0, 4, 1)),
        dict(group=2**62),
        f"group is {2**62}, expected at most {2**24}",
    ),
    "an index below all numbers": (
        "MaxPoolGrad",
        dict(dY=f32(1, 2, 1), Indices=np.full((1, 2, 1), -(2**63)), shape=i64(1, 2, 3)),
        {},
        f"input Indices has the value {-(2**63)} at [0, 0, 0], expected 0..2",
    ),
    "working memory beyond what tensors ask for": (
        "MaxPoolTraining",
        dict(X=f32(1, 1, 1, 1, 2)),
        dict(kernel_shape=[512, 512, 2], pads=[511, 511, 0, 0, 0, 2**20], dilations=[1, 1, 2**20]),
        "MiB of working memory, expected at most",
    ),
}  # fmt: skip

TAKEN = {
    "2^28 rows of width 0": (
        "GatherGrad",
        dict(shape=i64(2**28, 0), indices=i64(0), dY=f32(1, 0)),
        {},
    ),
    "2^28 softmax rows of width 0": (
        "SoftmaxGrad_13",
        dict(dY=f32(2**28, 0), Y=f32(2**28, 0)),
        {},
    ),
    "steps from one end of the numbers to the other": (
        "SliceGrad",
        dict(dY=f32(1), shape=i64(3), starts=i64(2**63 - 1), ends=i64(-(2**63)),
             axes=i64(0), steps=i64(-(2**63))),
        {},
    ),
    "a window larger than the image": (
        "MaxPoolTraining",
        dict(X=f32(1, 1, 2, 2)),
        dict(kernel_shape=[1024, 1024]),
    ),
    "rank 32": (
        "ConvGrad",
        dict(dY=f32(*ones(32)), X=f32(*ones(32)), W=f32(*ones(32))),
        {},
    ),
}  # fmt: skip
CASES = {**REFUSED, **TAKEN}
CHILD = """
import resource, sys
resource.setrlimit(resource.RLIMIT_AS, ({bytes}, {bytes}))
sys.path.insert(0, {tests!r})
from kernels import test_bounds
test_bounds.run_all(sys.argv[1])
"""


def run(host: str, name: str, inputs: dict, attributes: dict):
    contract = contracts()[name]
    if host == "numpy":
        return getattr(kernels, contract.python_name)(**inputs, **attributes)
    model = node_model(contract, inputs, attributes, [t.name for t in contract.outputs])
    return onnxgrad.session(model, threads=1).run(None, inputs)


def run_all(host: str) -> None:
    """In the child: one line per case, written before the next one begins."""
    for title, (name, inputs, attributes, *_) in CASES.items():
        signal.alarm(MOST_SECONDS)  # ends the process when a kernel does not come back
        try:
            run(host, name, inputs, attributes)
            outcome = "computed"
        except Exception as error:
            outcome = f"{type(error).__name__}: {error}"
        print(json.dumps([title, outcome]), flush=True)


@functools.cache
def outcomes(host: str) -> tuple[dict[str, str], str]:
    """What every case gave in a child with little memory, and how the child ended."""
    code = CHILD.format(bytes=MOST_BYTES, tests=str(TESTS))
    done = subprocess.run([sys.executable, "-c", code, host], capture_output=True, text=True)
    return dict(
        map(json.loads, done.stdout.splitlines())
    ), f"{done.returncode} {done.stderr[-500:]}"


def outcome_of(host: str, title: str) -> str:
    given, end = outcomes(host)
    assert title in given, f"the process ended ({end}) after '{list(given)[-1:]}'"
    return given[title]


hosts = pytest.mark.parametrize("host", ["numpy", "onnxruntime"])


@hosts
@pytest.mark.parametrize("title", REFUSED)
def test_refused_with_a_sentence(host, title):
    name, *_, sentence = REFUSED[title]
    outcome = outcome_of(host, title)
    assert sentence in outcome
    assert f"{name}: " in outcome
    if host == "numpy":
        assert outcome.startswith("ContractError: ")


@hosts
@pytest.mark.parametrize("title", TAKEN)
def test_computed_soon(host, title):
    assert outcome_of(host, title) == "computed"


def test_a_buffer_of_more_dims_than_numpy_has():
    kind = ctypes.c_float
    for _ in range(100):
        kind = kind * 1
    with pytest.raises(onnxgrad.ContractError, match="expected at most 32 dims"):
        kernels.relu_grad(kind(), kind())
    with pytest.raises(onnxgrad.ContractError, match="expected at most 32 dims"):
        kernels.relu_grad(f32(1), f32(1), out=kind())


def test_long_attributes_are_shown_in_part():
    with pytest.raises(onnxgrad.ContractError) as refusal:
        kernels.conv_grad(f32(1, 1, 1), f32(1, 1, 1), f32(1, 1, 1), strides=[1] * 100_000)
    assert "… 100000 elements]" in str(refusal.value)
    assert len(str(refusal.value)) < 500
