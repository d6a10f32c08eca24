"""Attention beyond its table of cases: central differences, many threads, memory, what is refused."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from peak_memory import ENVIRONMENT, peak_of
from places import TESTS

import onnxgrad
from onnxgrad import kernels
from onnxgrad.errors import ContractError


def normal(*shape, seed=0, dtype=np.float64):
    return np.random.default_rng(seed).normal(size=shape).astype(dtype)


FORMS = {
    "heads": dict(Q=(2, 4, 5, 3), K=(2, 2, 7, 3), V=(2, 2, 7, 6), mask=(4, 5, 7)),
    "tokens": dict(Q=(2, 5, 4, 3), K=(2, 5, 4, 3), V=(2, 5, 4, 3), mask=(2, 1, 1, 5)),
    "packed": dict(Q=(2, 5, 3, 2, 4)),
}


def node_model(shapes, **attributes) -> onnx.ModelProto:
    """One AttentionTraining, its inputs those of the graph."""
    names = [n if n in shapes else "" for n in ("Q", "K", "V", "mask", "key")]
    while not names[-1]:
        names.pop()
    kinds = {n: TensorProto.INT64 if n == "key" else TensorProto.DOUBLE for n in shapes}
    node = helper.make_node(
        "AttentionTraining", names, ["Y", "LSE"], domain="com.microsoft", **attributes
    )
    inputs = [helper.make_tensor_value_info(n, kinds[n], s) for n, s in shapes.items()]
    outputs = [helper.make_tensor_value_info("Y", TensorProto.DOUBLE, None)]
    graph = helper.make_graph([node], "attention", inputs, outputs)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


@pytest.mark.parametrize("causal", [0, 1])
@pytest.mark.parametrize("ratio", [0.0, 0.3])
@pytest.mark.parametrize("form", FORMS)
def test_gradients_agree_with_central_differences(form, ratio, causal):
    shapes = dict(FORMS[form])
    arrays = {n: normal(*s, seed=i) for i, (n, s) in enumerate(shapes.items())}
    attributes = {"causal": causal, "ratio": ratio, "layout": form if form != "packed" else "heads"}
    if ratio:
        shapes["key"], arrays["key"] = (2,), np.array([7, 1], np.int64)
    wrt = [n for n in shapes if n != "key"]
    session = onnxgrad.session(onnxgrad.vjp(node_model(shapes, **attributes), wrt=wrt))

    def forward(changed):
        return kernels.attention_training(**{**arrays, **changed}, **attributes)[0]

    dY = normal(*forward({}).shape, seed=9)
    results = session.run(None, {**arrays, "Y_grad": dY})
    gradients = dict(zip([o.name for o in session.get_outputs()], results, strict=True))
    for i, name in enumerate(wrt):
        direction, step = normal(*shapes[name], seed=20 + i), 1e-5
        moved = [forward({name: arrays[name] + sign * step * direction}) for sign in (1, -1)]
        expected = np.sum((moved[0] - moved[1]) * dY) / (2 * step)
        assert np.sum(gradients[f"{name}_grad"] * direction) == pytest.approx(
            expected, rel=1e-6, abs=1e-8
        ), name


def test_the_same_bits_on_any_number_of_threads():
    Q = normal(2, 270, 3, 3, 16, dtype=np.float32)
    mask = normal(1, 3, 270, 270, seed=1, dtype=np.float32)
    found = []
    for count in (1, 2, 5, 16, 64):
        kernels.set_num_threads(count)
        Y, LSE = kernels.attention_training(Q, mask=mask)
        dQ, _, _, dmask = kernels.attention_grad(Y, Y, LSE, Q, mask=mask, outputs=("dQ", "dmask"))
        plain = kernels.attention_grad(Y, Y, LSE, Q, outputs=("dQ",))[0]
        found.append(b"".join(a.tobytes() for a in (Y, LSE, dQ, dmask, plain)))
    kernels.set_num_threads(2)
    assert all(bits == found[0] for bits in found)


def peaks_by_length() -> dict[int, int]:
    """Bytes that forward and backward need at once, beyond their inputs."""
    found = {}
    for length in (512, 2048, 8192):
        Q, K, V = (normal(1, 1, length, 16, seed=i, dtype=np.float32) for i in range(3))

        def both(Q=Q, K=K, V=V):
            Y, LSE = kernels.attention_training(Q, K, V)
            kernels.attention_grad(Y, Y, LSE, Q, K, V, outputs=("dQ", "dK", "dV"))

        found[length] = peak_of(both)
    return found


@pytest.mark.skipif(not os.access("/proc/self/clear_refs", os.W_OK),
                    reason="this system does not tell how much memory a call needs")  # fmt: skip
def test_memory_grows_with_the_length_not_with_its_square():
    program = (
        "import json\nfrom kernels.attention import test_attention\n"
        "print(json.dumps(test_attention.peaks_by_length()))"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=TESTS, check=True,
                          env={**os.environ, **ENVIRONMENT}, capture_output=True, text=True)  # fmt: skip
    peaks = {int(k): v for k, v in json.loads(done.stdout).items()}
    scores = 4 * 8192**2
    assert peaks[8192] < scores / 8
    assert peaks[8192] - peaks[2048] < 5 * max(peaks[2048], 4 << 20), peaks


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"Q": (2, 3, 4)},
         "AttentionTraining: input Q has shape [2, 3, 4], expected [N, S, 3, H, D] where K and V are absent"),
        ({"Q": (1, 2, 3, 4), "K": (1, 2, 3, 4)}, "AttentionTraining: has one of K and V, expected both or none"),
        ({"Q": (1, 2, 3, 4), "K": (1, 2, 3, 5), "V": (1, 2, 3, 5)},
         "AttentionTraining: input K has shape [1, 2, 3, 5], expected [N, heads, tokens, width] with N and width of Q"),
        ({"Q": (1, 4, 3, 4), "K": (1, 3, 3, 4), "V": (1, 3, 3, 4)},
         "AttentionTraining: input K has shape [1, 3, 3, 4], expected a number of heads that divides Q's, 4"),
        ({"Q": (1, 2, 3, 4), "K": (1, 2, 5, 4), "V": (1, 2, 5, 4), "mask": (3, 4)},
         "AttentionTraining: input mask has shape [3, 4], expected what broadcasts to [N, H, S, L] = [1, 2, 3, 5]"),
        ({"Q": (1, 2, 3, 1, 4), "ratio": 0.5}, "AttentionTraining: has a ratio of dropout and no key"),
        ({"Q": (1, 2, 3, 1, 4), "ratio": 1.0}, "AttentionTraining: ratio is 1.000000, expected 0 <= ratio < 1"),
    ],
)  # fmt: skip
def test_what_is_refused(arguments, message):
    given = {k: normal(*v) if isinstance(v, tuple) else v for k, v in arguments.items()}
    with pytest.raises(ContractError) as error:
        kernels.attention_training(**given)
    assert str(error.value) == message


def test_a_gradient_of_what_is_absent_is_refused():
    Q = normal(1, 3, 3, 1, 2)
    Y, LSE = kernels.attention_training(Q)
    with pytest.raises(ContractError, match="has no input mask and is asked for dmask"):
        kernels.attention_grad(Y, Y, LSE, Q, outputs=("dQ", "dmask"))
