"""What comes into the NumPy host: names, memory that is shared, and arrays that are none."""

from __future__ import annotations

import resource
import subprocess
import sys

import numpy as np
import pytest

import onnxgrad
from onnxgrad import kernels

A = np.ones(4, np.float32)
NO_TEXT, WITH_ZERO = "\ud800", "dX\0more"


class Shown:
    """Shown as something that is not text."""

    def __repr__(self):
        return NO_TEXT


class Misleading:
    """An array whose rank is not a number."""

    def ndim(self):
        """Not called."""

    def __array__(self, dtype=None, copy=None):
        return A


def refused(match: str, *arguments, kernel=kernels.relu_grad, **keywords) -> None:
    with pytest.raises(onnxgrad.ContractError, match=match):
        kernel(*arguments, **keywords)


# ---- names


@pytest.mark.parametrize("name", [NO_TEXT, WITH_ZERO], ids=["no text", "with a zero"])
def test_names_that_are_none(name):
    shown = repr(name).replace("\\", r"\\")
    refused(f"no output is called {shown}, expected names of dX", A, A, outputs=name)
    refused(f"no output is called {shown}, expected names of dX", A, A, outputs=[name])
    refused(f"no output is called {shown}, expected names of dX", A, A, out={name: A})
    refused(f"unknown argument {shown}, expected dY, X, outputs or out", A, A, **{name: A})


def test_outputs_that_are_no_names():
    refused("outputs is 5, expected names of dX", A, A, outputs=5)
    refused("out is given for dX, which outputs leaves out", A, A, outputs=(), out=A.copy())


def test_an_attribute_that_cannot_be_shown():
    text = r"axis is \\ud800, expected an integer"
    refused(text, A, A, axis=Shown(), kernel=kernels.softmax_grad)


# ---- memory


@pytest.mark.parametrize("offset", [1, 7, -1, -5])
@pytest.mark.parametrize("size", [100, 1_000, 100_000])
def test_an_out_beside_an_input_is_right(size, offset):
    memory = np.random.default_rng(3).normal(size=size + 8).astype(np.float32)
    begin, out_begin = max(-offset, 0), max(offset, 0)
    source, out = memory[begin : begin + size], memory[out_begin : out_begin + size]
    other = np.full(size, 0.5, np.float32)
    for kernel in (kernels.relu_grad, kernels.gelu_grad, kernels.softmax_grad_13):
        for arguments in ((source, other), (other, source)):
            kept = memory.copy()
            expected = kernel(*(a.copy() for a in arguments))
            assert kernel(*arguments, out=out).tobytes() == expected.tobytes()
            memory[...] = kept


def test_an_out_over_a_small_input_is_right():
    dy, x, out = (np.ones((4, 8), np.float32) for _ in range(3))
    expected = kernels.bias_gelu_grad_dx(dy, x, out[0].copy())
    assert kernels.bias_gelu_grad_dx(dy, x, out[0], out=out).tobytes() == expected.tobytes()


def test_an_out_over_an_input_that_is_read_later_is_right():
    rng = np.random.default_rng(3)
    dy, x = (rng.normal(size=s).astype(np.float32) for s in ((2, 4, 6, 6), (2, 3, 8, 8)))
    w = rng.normal(size=(4, 3, 3, 3)).astype(np.float32)
    expected = kernels.conv_grad(dy, x.copy(), w)
    found = kernels.conv_grad(dy, x, w, out={"dX": x})
    assert [a.tobytes() for a in found] == [a.tobytes() for a in expected]


def test_outs_have_memory_of_their_own():
    dy, x, w = (np.ones(s, np.float32) for s in ((2, 4, 6, 6), (2, 3, 8, 8), (4, 3, 3, 3)))
    memory = np.zeros(1_000, np.float32)
    outs = {"dX": memory[:384].reshape(x.shape), "dW": memory[300:408].reshape(w.shape)}
    text = "out for dW shares memory with out for dX, expected arrays of their own"
    refused(text, dy, x, w, out=outs, kernel=kernels.conv_grad)


def test_an_out_that_is_not_aligned():
    out = np.zeros(17, np.uint8)[1:].view(np.float32)
    if out.ctypes.data % 4 == 0:
        out = np.zeros(18, np.uint8)[2:].view(np.float32)
    refused("out for dX begins between two of its elements' addresses", A, A, out=out)


# ---- arrays


def test_arrays_that_are_none():
    day = np.array(["2020-01-01"], "M8[D]")
    refused(r"input dY is of type datetime64\[D\], expected an array of numbers", day, A)
    refused(r"out for dX is of type datetime64\[D\], expected a writable array", A, A, out=day)
    refused("input dY is of type list, of which NumPy makes no array", [[1.0, 2.0], [3.0]], A)
    refused("input dY is of type object, expected float32 or float64", np, A)


def test_masked_arrays_are_refused():
    masked = np.ma.array(A, mask=[True, False, False, False])
    refused("input X is a masked array, expected one without a mask", A, masked)
    refused("out for dX is a masked array, expected one without a mask", A, A, out=masked)


def test_a_rank_that_is_no_number():
    assert kernels.relu_grad(Misleading(), A).tobytes() == A.tobytes()


# ---- threads

FEW_THREADS = """
import resource
import numpy as np
from onnxgrad import kernels
a = np.ones(1 << 20, np.float32)
kernels.relu_grad(a, a)
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (200 << 20), resource.RLIM_INFINITY))
kernels.set_num_threads(1024)
print(float(kernels.relu_grad(a, a).sum()))
"""


@pytest.mark.skipif(not hasattr(resource, "RLIMIT_AS"), reason="no limit of memory to set")
def test_a_system_without_more_threads_uses_those_there_are():
    done = subprocess.run([sys.executable, "-c", FEW_THREADS], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "1048576.0\n"), done.stderr
