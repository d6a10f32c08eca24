"""The exact text of every error that a wrong call gives, on both hosts."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from ort_models import node_model

import onnxgrad
from onnxgrad import kernels
from onnxgrad.contracts import contracts

A = np.zeros((2, 3), np.float32)
B = np.zeros((3, 2), np.float32)
D = np.zeros((2, 3), np.float64)


def transposed_out():
    return np.empty((3, 2), np.float32).T


# operator, inputs, attributes, text: what both hosts must say
WRONG_ON_BOTH = [
    ("ReluGrad", dict(dY=A, X=B), {},
     "ReluGrad: input X has shape [3, 2], expected [shape...] with shape... = [2, 3] (from dY)"),
    ("TanhGrad", dict(dY=A, Y=A[0]), {},
     "TanhGrad: input Y has shape [3], expected [shape...] with shape... = [2, 3] (from dY)"),
    ("BiasGeluGrad_dX", dict(dY=A, X=A, B=B[:, 0][:2]), {},
     "BiasGeluGrad_dX: input B has shape [2], expected [C] with C = 3 (from dY)"),
    ("BiasGeluGrad_dX", dict(dY=A, X=A, B=A), {},
     "BiasGeluGrad_dX: input B has shape [2, 3], expected [C] with C = 3 (from dY)"),
    ("BiasFastGeluGrad_dX", dict(dY=np.float32(1), X=np.float32(1), B=A[0]), {},
     "BiasFastGeluGrad_dX: input dY has shape [], expected [outer..., C]"),
    ("SoftmaxGrad_13", dict(dY=A, Y=A), dict(axis=2),
     "SoftmaxGrad_13: axis is 2, expected -2..1 for Y of rank 2"),
    ("SoftmaxGrad", dict(dY=A[0], Y=A[0]), {},
     "SoftmaxGrad: axis is 1, expected -1..0 for Y of rank 1"),
    ("LogSoftmaxGrad_13", dict(dY=A, Y=A), dict(axis=-3),
     "LogSoftmaxGrad_13: axis is -3, expected -2..1 for Y of rank 2"),
    ("LogSoftmaxGrad", dict(dY=np.float32(1), Y=np.float32(1)), dict(axis=1),
     "LogSoftmaxGrad: axis is 1, expected -1..0 for Y of rank 0"),
]  # fmt: skip

WRONG_ON_NUMPY = [
    (lambda: kernels.relu_grad(A), "ReluGrad: input X is missing"),
    (lambda: kernels.relu_grad(None, A), "ReluGrad: input dY is missing"),
    (lambda: kernels.relu_grad(A, A, A),
     "ReluGrad: got 3 positional arguments, expected at most 2 (attributes are keywords)"),
    (lambda: kernels.relu_grad(A, A, dY=A), "ReluGrad: input dY is given twice"),
    (lambda: kernels.relu_grad(A, A, alpha=1.0),
     "ReluGrad: unknown argument 'alpha', expected dY, X, outputs or out"),
    (lambda: kernels.relu_grad(A, D), "ReluGrad: input X is of type float64, expected float32 (the type of dY)"),
    (lambda: kernels.relu_grad(A.astype(np.float16), A),
     "ReluGrad: input dY is of type float16, expected float32 or float64"),
    (lambda: kernels.relu_grad(A.astype(np.int32), A),
     "ReluGrad: input dY is of type int32, expected float32 or float64"),
    (lambda: kernels.relu_grad(A, A.astype(">f4")),
     "ReluGrad: input X is of type >f4, expected float32 or float64"),
    (lambda: kernels.relu_grad("text", A), "ReluGrad: input dY is of type <U4, expected float32 or float64"),
    (lambda: kernels.relu_grad(A, object()), "ReluGrad: input X is of type object, expected float32 or float64"),
    (lambda: kernels.leaky_relu_grad(A, A, alpha="steep"), "LeakyReluGrad: alpha is 'steep', expected a float"),
    (lambda: kernels.leaky_relu_grad(A, A, alpha=[1.0]), "LeakyReluGrad: alpha is [1.0], expected a float"),
    (lambda: kernels.softmax_grad_13(A, A, axis=1.0), "SoftmaxGrad_13: axis is 1.0, expected an integer"),
    (lambda: kernels.softmax_grad_13(A, A, axis=True), "SoftmaxGrad_13: axis is True, expected an integer"),
    (lambda: kernels.softmax_grad_13(A, A, axis=2**70),
     "SoftmaxGrad_13: axis is 1180591620717411303424, expected an integer"),
    (lambda: kernels.relu_grad(A, A, outputs=("dW",)),
     "ReluGrad: no output is called 'dW', expected names of dX"),
    (lambda: kernels.relu_grad(A, A, outputs=(1,)), "ReluGrad: no output is called 1, expected names of dX"),
    (lambda: kernels.relu_grad(A, A, out=B.copy()), "ReluGrad: out for dX has shape [3, 2], expected [2, 3]"),
    (lambda: kernels.relu_grad(A, A, out=D.copy()), "ReluGrad: out for dX is of type float64, expected float32"),
    (lambda: kernels.relu_grad(A, A, out=transposed_out()),
     "ReluGrad: out for dX is not contiguous, expected a C-contiguous array"),
    (lambda: kernels.relu_grad(A, A, out=[0.0]), "ReluGrad: out for dX is of type list, expected a writable array"),
    (lambda: kernels.relu_grad(A, A, out={"dY": A}), "ReluGrad: no output is called 'dY', expected names of dX"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "inputs", "attributes", "text"),
    WRONG_ON_BOTH,
    ids=lambda v: v if isinstance(v, str) else "",
)
def test_both_hosts_refuse_with_the_same_text(name, inputs, attributes, text):
    contract = contracts()[name]
    with pytest.raises(onnxgrad.ContractError) as error:
        getattr(kernels, contract.python_name)(**inputs, **attributes)
    assert str(error.value) == text

    arrays = {k: np.asarray(v) for k, v in inputs.items()}
    model = node_model(contract, arrays, attributes, [contract.outputs[0].name])
    session = onnxgrad.session(model)
    with pytest.raises(Exception, match="INVALID_ARGUMENT") as error:
        session.run(None, arrays)
    assert str(error.value).endswith(f"Name:'node' Status Message: {text}")


@pytest.mark.parametrize(("call", "text"), WRONG_ON_NUMPY, ids=[text for _, text in WRONG_ON_NUMPY])
def test_numpy_host_refuses(call, text):
    with pytest.raises(onnxgrad.ContractError) as error:
        call()
    assert str(error.value) == text


def test_a_read_only_out_is_refused_and_not_written():
    out = np.ones((2, 3), np.float32)
    out.setflags(write=False)
    with pytest.raises(
        onnxgrad.ContractError, match=r"out for dX is read-only, expected a writable array"
    ):
        kernels.relu_grad(A, A, out=out)
    assert out.all()


def relu_model(attributes=None, inputs=("dY", "X"), element=np.float32):
    arrays = {n: A.astype(element) for n in inputs}
    return node_model(contracts()["ReluGrad"], arrays, attributes or {}, ["dX"])


def test_session_refuses_an_unknown_attribute():
    with pytest.raises(onnxgrad.ContractError) as error:
        onnxgrad.session(relu_model({"slope": 1.0}))
    assert str(error.value) == "ReluGrad: unknown attribute 'slope', expected none (node 'node')"


def test_session_refuses_an_attribute_of_the_wrong_kind():
    model = node_model(contracts()["SoftmaxGrad_13"], {"dY": A, "Y": A}, {"axis": 1.5}, ["dX"])
    with pytest.raises(
        Exception,
        match="SoftmaxGrad_13: axis is of another kind, expected an integer \\(node 'node'\\)",
    ):
        onnxgrad.session(model)


def test_session_refuses_a_missing_input():
    with pytest.raises(Exception, match=r"ReluGrad.*has input size 1 not in range"):
        onnxgrad.session(relu_model(inputs=("dY",)))


def test_session_refuses_another_type():
    with pytest.raises(
        Exception,
        match="Type 'tensor\\(float16\\)' of input parameter \\(dY\\) of operator \\(ReluGrad\\)",
    ):
        onnxgrad.session(relu_model(element=np.float16))


@pytest.mark.parametrize("count", [0, -1, 1.5, "2", None, True, 10**9])
def test_set_num_threads_refuses(count):
    with pytest.raises(ValueError, match="expected an integer from 1 to 1024"):
        onnxgrad.set_num_threads(count)


def test_a_file_that_is_no_model_is_left_to_onnxruntime(tmp_path):
    path = tmp_path / "model.onnx"
    path.write_bytes(b"not a model")
    with pytest.raises(Exception, match=r"(?i)protobuf"):
        onnxgrad.session(path)


def test_attributes_in_subgraphs_are_checked_too():
    model = relu_model({"slope": 1.0})
    inner = model.graph
    branch = onnx.helper.make_graph(list(inner.node), "branch", [], list(inner.output))
    node = onnx.helper.make_node("If", ["c"], ["dX"], then_branch=branch, else_branch=branch)
    del inner.node[:]
    inner.node.append(node)
    inner.input.append(onnx.helper.make_tensor_value_info("c", onnx.TensorProto.BOOL, []))
    with pytest.raises(onnxgrad.ContractError, match="unknown attribute 'slope'"):
        onnxgrad.session(model)
