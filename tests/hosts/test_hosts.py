"""How the kernels live in their hosts: memory, layout, threads, forks, and the corners of ONNX Runtime."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from ort_models import node_model

import onnxgrad
from onnxgrad import kernels
from onnxgrad.contracts import DOMAIN, contracts

RNG = np.random.default_rng(7)
DY, X = (RNG.normal(size=(64, 33)).astype(np.float32) for _ in range(2))
EXPECTED = kernels.gelu_grad(DY, X)


def gelu_model(**names) -> onnx.ModelProto:
    return node_model(contracts()["GeluGrad"], {"dY": DY, "X": X}, {}, ["dX"], **names)


# ---- NumPy


def test_out_is_filled_and_returned():
    out = np.full_like(DY, np.nan)
    assert kernels.gelu_grad(DY, X, out=out) is out
    assert out.tobytes() == EXPECTED.tobytes()


def test_out_may_be_the_memory_of_an_input():
    for name in contracts():
        contract = contracts()[name]
        if contract.inplace is None or [t.type for t in contract.inputs] != ["T", "T"]:
            continue
        kernel = getattr(kernels, contract.python_name)
        dy, other = np.abs(DY) / 5, np.abs(X) / 5
        expected = kernel(dy, other)
        assert kernel(dy, other, out=dy) is dy
        assert dy.tobytes() == expected.tobytes(), name


@pytest.mark.parametrize("shape", [(6, 40), (2, 7, 3, 5)], ids=["rows", "classes apart"])
def test_scores_logarithms_and_gradient_of_a_loss_may_share_memory(shape):
    """The label's own term is read before its place is written over; ignored labels become zeros."""
    random = np.random.default_rng(0)
    scores = random.standard_normal(shape).astype(np.float32)
    labels = random.integers(0, shape[1], (shape[0], *shape[2:]))
    labels.flat[1] = -100
    ignored = np.array(-100)
    loss, logs = kernels.softmax_cross_entropy_loss_internal(scores, labels, None, ignored)
    gradient = kernels.softmax_cross_entropy_loss_internal_grad(loss, logs, labels, None, ignored)
    memory = scores.copy()
    kernels.softmax_cross_entropy_loss_internal(
        memory, labels, None, ignored, out={"log_prob": memory}
    )
    assert memory.tobytes() == logs.tobytes()
    kernels.softmax_cross_entropy_loss_internal_grad(
        loss, memory, labels, None, ignored, out={"d_logits": memory}
    )
    assert memory.tobytes() == gradient.tobytes()


@pytest.mark.parametrize(
    "kind", ["strided", "reversed", "transposed", "misaligned", "Fortran", "read-only"]
)
def test_any_layout_gives_the_same_bits(kind):
    def lay_out(a):
        if kind == "strided":
            return np.repeat(a, 2, axis=1)[:, ::2]
        if kind == "reversed":
            return a[::-1].copy()[::-1]
        if kind == "transposed":
            return a.T.copy().T
        if kind == "misaligned":
            raw = np.empty(a.nbytes + 1, np.uint8)
            view = raw[1:].view(a.dtype).reshape(a.shape)
            view[...] = a
            return view
        if kind == "Fortran":
            return np.asfortranarray(a)
        b = a.copy()
        b.setflags(write=False)
        return b

    assert kernels.gelu_grad(lay_out(DY), lay_out(X)).tobytes() == EXPECTED.tobytes()


def test_plain_python_numbers_are_taken():
    assert kernels.relu_grad([1.0, 2.0], [-1.0, 1.0]).tolist() == [0.0, 2.0]
    assert kernels.relu_grad(3.0, 1.0).shape == ()


def test_inputs_by_name_and_outputs_left_out():
    assert kernels.gelu_grad(X=X, dY=DY).tobytes() == EXPECTED.tobytes()


def test_threads_of_python_may_call_at_once():
    big_dy, big_x = (RNG.normal(size=300_000).astype(np.float32) for _ in range(2))
    expected = kernels.gelu_grad(big_dy, big_x).tobytes()
    wrong = []

    def work():
        for _ in range(20):
            if kernels.gelu_grad(big_dy, big_x).tobytes() != expected:
                wrong.append(1)

    workers = [threading.Thread(target=work) for _ in range(8)]
    for w in workers:
        w.start()
    for w in workers:
        w.join()
    assert not wrong


def test_changing_the_number_of_threads_while_others_compute():
    big = RNG.normal(size=200_000).astype(np.float32)
    worker = threading.Thread(target=lambda: [kernels.gelu_grad(big, big) for _ in range(50)])
    worker.start()
    for count in (1, 3, 2, 7, 1, 2) * 5:
        onnxgrad.set_num_threads(count)
        assert onnxgrad.get_num_threads() == count
    worker.join()
    onnxgrad.set_num_threads(2)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_process_computes_too():
    big = RNG.normal(size=200_000).astype(np.float32)
    expected = kernels.gelu_grad(big, big).tobytes()
    child = os.fork()
    if child == 0:
        os._exit(0 if kernels.gelu_grad(big, big).tobytes() == expected else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_signatures_are_the_contracts():
    import inspect

    assert str(inspect.signature(kernels.relu_grad)) == "(dY, X, *, outputs=None, out=None)"
    text = str(inspect.signature(kernels.softmax_grad_13))
    assert text == "(dY, Y, *, axis=-1, outputs=None, out=None)"
    assert kernels.softmax_grad_13.__doc__.startswith("Gradient of Softmax from opset 13 on.")


def test_no_memory_is_kept():
    import tracemalloc

    tracemalloc.start()
    for _ in range(10):
        kernels.gelu_grad(DY, X)
    before = tracemalloc.get_traced_memory()[0]
    for _ in range(2_000):
        kernels.gelu_grad(DY, X)
        with pytest.raises(onnxgrad.ContractError):
            kernels.gelu_grad(DY, X[1:])
    gc.collect()
    grown = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert grown < 100_000


# ---- import


def test_import_loads_neither_onnxruntime_nor_torch():
    code = (
        "import sys, onnxgrad; onnxgrad.kernels.relu_grad([1.0], [1.0]); "
        "print([m for m in ('onnxruntime', 'torch', 'onnx', 'onnx_ir', 'rich') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


# ---- ONNX Runtime


def run(model, **feeds):
    return onnxgrad.session(model, threads=1).run(None, feeds or {"dY": DY, "X": X})[0]


def test_register_twice_changes_nothing():
    import onnxruntime

    options = onnxruntime.SessionOptions()
    assert onnxgrad.register(onnxgrad.register(options)) is options
    session = onnxruntime.InferenceSession(gelu_model().SerializeToString(), options)
    assert session.run(None, {"dY": DY, "X": X})[0].tobytes() == EXPECTED.tobytes()


def test_a_model_by_path_bytes_and_proto(tmp_path):
    path = tmp_path / "model.onnx"
    onnx.save(gelu_model(), path)
    for model in (path, str(path), path.read_bytes(), gelu_model()):
        assert run(model).tobytes() == EXPECTED.tobytes()


def test_library_has_no_python_in_it():
    data = Path(onnxgrad.library_path()).read_bytes()
    assert b"RegisterCustomOps" in data
    assert b"PyObject_Call" not in data


def wrapped(node, *, extra_inputs=(), functions=()):
    inputs = [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in ("dY", "X")]
    graph = helper.make_graph(
        [node],
        "g",
        [*inputs, *extra_inputs],
        [helper.make_tensor_value_info("dX", TensorProto.FLOAT, None)],
    )
    imports = [helper.make_opsetid(d, v) for d, v in (("", 17), (DOMAIN, 1), ("local", 1))]
    return helper.make_model(graph, opset_imports=imports, functions=list(functions), ir_version=8)


def test_inside_the_body_of_if():
    def branch(op, name):
        out = helper.make_tensor_value_info(name, TensorProto.FLOAT, None)
        return helper.make_graph(
            [helper.make_node(op, ["dY", "X"], [name], domain=DOMAIN)], name, [], [out]
        )

    node = helper.make_node(
        "If",
        ["c"],
        ["dX"],
        then_branch=branch("GeluGrad", "a"),
        else_branch=branch("ReluGrad", "b"),
    )
    model = wrapped(node, extra_inputs=[helper.make_tensor_value_info("c", TensorProto.BOOL, [])])
    assert run(model, dY=DY, X=X, c=np.array(True)).tobytes() == EXPECTED.tobytes()
    assert run(model, dY=DY, X=X, c=np.array(False)).tobytes() == kernels.relu_grad(DY, X).tobytes()


def test_inside_a_model_local_function():
    imports = [helper.make_opsetid("", 17), helper.make_opsetid(DOMAIN, 1)]
    body = [helper.make_node("GeluGrad", ["a", "b"], ["c"], domain=DOMAIN)]
    function = helper.make_function("local", "Mine", ["a", "b"], ["c"], body, imports)
    model = wrapped(
        helper.make_node("Mine", ["dY", "X"], ["dX"], domain="local"), functions=[function]
    )
    assert run(model).tobytes() == EXPECTED.tobytes()


def test_beside_built_in_operators_of_the_same_domain():
    nodes = [
        helper.make_node("Gelu", ["X"], ["y"], domain=DOMAIN),
        helper.make_node("GeluGrad", ["dY", "y"], ["dX"], domain=DOMAIN),
    ]
    model = wrapped(nodes[1])
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    gelu = wrapped(helper.make_node("Gelu", ["X"], ["dX"], domain=DOMAIN))
    del gelu.graph.input[0]
    y = run(gelu, X=X)
    assert run(model).tobytes() == kernels.gelu_grad(DY, y).tobytes()


def test_a_model_without_our_domain_is_still_optimised_by_the_runtime():
    nodes = [helper.make_node("Gemm", ["dY", "X"], ["y"]), helper.make_node("Relu", ["y"], ["dX"])]
    model = wrapped(nodes[0])
    del model.graph.node[:], model.opset_import[1:]
    model.graph.node.extend(nodes)
    result = run(model, dY=DY, X=X.T.copy())  # fused to com.microsoft.FusedGemm
    np.testing.assert_allclose(result, np.maximum(DY @ X.T, 0), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_shapes_and_types_are_inferred_through_our_nodes(dtype):
    inputs = {"dY": DY.astype(dtype), "X": X.astype(dtype)}
    model = node_model(contracts()["GeluGrad"], inputs, {}, ["dX"])
    element = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    for value in model.graph.input:
        value.CopyFrom(helper.make_tensor_value_info(value.name, element, ["batch", 33]))
    session = onnxgrad.session(model)
    assert session.get_outputs()[0].shape == ["batch", 33]
    assert session.run(None, inputs)[0].dtype == dtype


def test_many_sessions_and_many_threads():
    data = gelu_model().SerializeToString()
    sessions = [onnxgrad.session(data, threads=1) for _ in range(100)]
    wrong = []

    def work(session):
        for _ in range(20):
            if session.run(None, {"dY": DY, "X": X})[0].tobytes() != EXPECTED.tobytes():
                wrong.append(1)

    workers = [
        threading.Thread(target=work, args=(s,)) for s in (*sessions[:4], *[sessions[4]] * 4)
    ]
    for w in workers:
        w.start()
    for w in workers:
        w.join()
    assert not wrong
    del sessions
    gc.collect()
    assert run(gelu_model()).tobytes() == EXPECTED.tobytes()


def test_the_caller_s_arrays_are_not_written():
    dy, x = DY.copy(), X.copy()
    run(gelu_model(), dY=dy, X=x)
    assert dy.tobytes() == DY.tobytes()
    assert x.tobytes() == X.tobytes()
