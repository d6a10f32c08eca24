"""LSTM and GRU beyond the case tables: stock onnxruntime, central differences, and what is refused."""

from __future__ import annotations

import importlib

import numpy as np
import onnx
import pytest
from cases import cases_of
from cases.gru import GRU
from cases.lstm import LSTM
from onnx import helper
from ort_models import node_model

import onnxgrad
from onnxgrad import kernels
from onnxgrad.contracts import contracts


def cases_where(names, keep=lambda case: True) -> list:
    return [pytest.param(c, id=str(c)) for n in names for c in cases_of(contracts()[n]) if keep(c)]


def relative_rms(got, expected) -> float:
    scale = np.sqrt(np.mean(np.square(expected, dtype=np.float64)))
    return float(np.sqrt(np.mean((got - expected) ** 2)) / (scale or 1.0)) if expected.size else 0.0


# ---- the forward pass is that of stock onnxruntime


def runs_in_onnxruntime(case) -> bool:
    """The stock LSTM and GRU end the process on an empty batch, GRU on an empty sequence too."""
    return case.title not in {"no rows", "no steps", "no inputs"} and case.outputs is None


@pytest.mark.parametrize("case", cases_where(["LSTMTraining", "GRUTraining"], runs_in_onnxruntime))
def test_forward_equals_stock_onnxruntime(case):
    import onnxruntime

    inputs = case.inputs(np.float32)
    order = ["X", "W", "R", "B", "SL", "H0", "C0", "P"]
    names = [n if n in inputs else "" for n in order if n in {t.name for t in case.contract.inputs}]
    op = case.contract.name.removesuffix("Training")
    outputs = ["HAll", "Ht", "Ct"][: 3 if op == "LSTM" else 2]
    attributes = {"hidden_size": inputs["R"].shape[2], **case.attributes}
    node = helper.make_node(op, names, outputs, **attributes)
    graph = helper.make_graph(
        [node],
        "stock",
        [
            helper.make_tensor_value_info(k, helper.np_dtype_to_tensor_dtype(v.dtype), None)
            for k, v in inputs.items()
        ],
        [helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, None) for n in outputs],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 14)], ir_version=8)
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    ours = case.run_numpy(np.float32)
    for name, expected in zip(outputs, session.run(outputs, inputs), strict=True):
        assert relative_rms(ours[name], expected) <= 2e-6, name


# ---- central differences judge the references, and the kernels in double

KINKED = {"Relu", "ThresholdedRelu", "LeakyRelu", "HardSigmoid"}
SMALL = 400  # elements of X and HAll: the others differ in size only


def smooth_and_small(case) -> bool:
    """A difference quotient needs a derivative: no kink at the exact zero of an absent initial state."""
    names = set(case.attributes.get("activations", ()))
    at_zero = not {"H0", "C0"} & set(case.samples)
    return case.outputs is None and not (names & KINKED and at_zero) and "grad_HAll" in case.samples


def loss_of(forward, family, cotangents, attributes):
    def loss(inputs):
        results = dict(zip(family.outputs, forward(**inputs, **attributes), strict=True))
        return sum(
            float(np.sum(c * results[name.removeprefix("grad_")])) for name, c in cotangents.items()
        )

    return loss


def assert_gradient(family, case, forward, gradient):
    """Along one random direction per input: (L(x + εv) − L(x − εv)) / 2ε against ⟨dL/dx, v⟩."""
    inputs = case.inputs(np.float64)
    if inputs["X"].size > SMALL or inputs["HAll"].size > SMALL:
        pytest.skip("a smaller case covers it")
    results = dict(zip(family.gradients, gradient(**inputs, **case.attributes), strict=True))
    cotangents = {k: v for k, v in inputs.items() if k.startswith("grad_")}
    plain = {k: v for k, v in inputs.items() if not k.startswith("grad_") and k not in family.kept}
    loss = loss_of(forward, family, cotangents, case.attributes)
    rng = np.random.default_rng(3)
    for name, grad in results.items():
        at = plain.get(name[1:], np.zeros(grad.shape))
        direction, step = rng.normal(0, 1, grad.shape), 1e-6
        high, low = ({**plain, name[1:]: at + sign * step * direction} for sign in (1, -1))
        numeric = (loss(high) - loss(low)) / (2 * step)
        scale = max(
            1.0, np.sqrt(np.sum(grad**2) * np.sum(direction**2)) / np.sqrt(max(grad.size, 1))
        )
        assert abs(numeric - np.sum(grad * direction)) <= 1e-7 * scale, name


FAMILIES = {"LSTMGrad": LSTM, "GRUGrad": GRU}


def bare(case):
    """LSTMGrad takes no B: the forward that made its inputs is repeated without one."""
    family = FAMILIES[case.contract.name]
    inputs = case.inputs(np.float64)
    plain = {k: v for k, v in inputs.items() if not k.startswith("grad_") and k not in family.kept}
    results = dict(zip(family.outputs, family.forward(**plain, **case.attributes), strict=True))
    samples = {**case.samples, **{n: (lambda rng, n=n: results[n]) for n in family.kept}}
    return type(case)(case.title, **samples, **case.attributes).of(case.contract)


differences = pytest.mark.parametrize("case", cases_where(FAMILIES, smooth_and_small))


@differences
def test_reference_agrees_with_central_differences(case):
    family = FAMILIES[case.contract.name]
    name = case.contract.python_name
    gradient = getattr(importlib.import_module(f"reference.{name}"), name)
    assert_gradient(family, bare(case), family.forward, gradient)


@differences
def test_kernels_agree_with_central_differences(case):
    family = FAMILIES[case.contract.name]
    forward = getattr(kernels, f"{family.op}_training")
    assert_gradient(family, bare(case), forward, getattr(kernels, f"{family.op}_grad"))


def test_without_peepholes_their_path_is_left_out_as_in_the_old_kernel():
    case = next(c for c in cases_of(contracts()["LSTMGrad"]) if c.title == "one step")
    inputs = case.inputs(np.float64)
    without = {**inputs, "P": None}
    zero = {**inputs, "P": np.zeros_like(inputs["P"])}
    for name, a, b in zip(
        LSTM.gradients, kernels.lstm_grad(**without), kernels.lstm_grad(**zero), strict=True
    ):
        assert np.array_equal(a, b), name


# ---- what is refused, in both hosts with the same text

S, N, I, H = 3, 2, 4, 5  # noqa: E741


def lstm_inputs(**changes):
    arrays = dict(X=(S, N, I), W=(1, 4 * H, I), R=(1, 4 * H, H))
    return {k: np.zeros(v, np.float32) for k, v in arrays.items()} | changes


def gru_grad_inputs(**changes):
    shapes = dict(
        X=(S, N, I), W=(1, 3 * H, I), R=(1, 3 * H, H), HAll=(S, 1, N, H), ZRH=(S, 1, N, 3 * H)
    )
    return {k: np.zeros(v, np.float32) for k, v in shapes.items()} | changes


def zeros(*shape):
    return np.zeros(shape, np.float32)


KNOWN = "Affine, Relu, LeakyRelu, ThresholdedRelu, Tanh, ScaledTanh, Sigmoid, HardSigmoid, Elu, Softsign or Softplus"
BELOW = "expected 0 or more: below that its derivative does not follow from its stored value"
WRONG = [
    ("LSTMTraining", lstm_inputs(W=zeros(1, 19, I)), {},
     "LSTMTraining: input W has shape [1, 19, 4], expected [D, 4*H, I] with I = 4 (from X)"),
    ("LSTMTraining", lstm_inputs(R=zeros(1, 20, 6)), {},
     "LSTMTraining: input R has shape [1, 20, 6], expected [D, 4*H, H] with D = 1 (from W), H = 5 (from W)"),
    ("LSTMTraining", lstm_inputs(B=zeros(1, 20)), {},
     "LSTMTraining: input B has shape [1, 20], expected [D, 8*H] with D = 1 (from W), H = 5 (from W)"),
    ("LSTMTraining", lstm_inputs(H0=zeros(1, 3, H)), {},
     "LSTMTraining: input H0 has shape [1, 3, 5], expected [D, N, H] with D = 1 (from W), N = 2 (from X), "
     "H = 5 (from W)"),
    ("LSTMTraining", lstm_inputs(SL=np.array([1, 2, 3], np.int32)), {},
     "LSTMTraining: input SL has shape [3], expected [N] with N = 2 (from X)"),
    ("LSTMTraining", lstm_inputs(SL=np.array([1, 4], np.int32)), {},
     "LSTMTraining: input SL has the value 4 at 1, expected 0..3 (S of X)"),
    ("LSTMTraining", lstm_inputs(SL=np.array([-1, 2], np.int32)), {},
     "LSTMTraining: input SL has the value -1 at 0, expected 0..3 (S of X)"),
    ("LSTMTraining", lstm_inputs(), dict(hidden_size=4),
     "LSTMTraining: hidden_size is 4, expected 5 (from R of shape [1, 20, 5])"),
    ("LSTMTraining", lstm_inputs(), dict(direction="bidirectional"),
     "LSTMTraining: input W has shape [1, 20, 4], expected 2 as its first dim for direction bidirectional"),
    ("LSTMTraining", lstm_inputs(), dict(direction="both"),
     "LSTMTraining: direction is 'both', expected forward, reverse or bidirectional"),
    ("LSTMTraining", lstm_inputs(), dict(input_forget=2), "LSTMTraining: input_forget is 2, expected 0 or 1"),
    ("GRUGrad", gru_grad_inputs(), dict(linear_before_reset=-1),
     "GRUGrad: linear_before_reset is -1, expected 0 or 1"),
    ("LSTMTraining", lstm_inputs(), dict(clip=-1.0), "LSTMTraining: clip is -1, expected 0 or more"),
    ("LSTMTraining", lstm_inputs(), dict(activations=["Sigmoid", "Gelu", "Tanh"]),
     f"LSTMTraining: activations has 'Gelu', expected {KNOWN}"),
    ("LSTMTraining", lstm_inputs(), dict(activations=["Sigmoid"]),
     "LSTMTraining: activations has 1 names, expected 3 (3 for each direction)"),
    ("GRUGrad", gru_grad_inputs(), {},
     "GRUGrad: no cotangent is given, expected at least one of grad_HAll or grad_Ht"),
    ("GRUGrad", gru_grad_inputs(grad_Ht=zeros(1, N, H)),
     dict(activations=["Sigmoid", "LeakyRelu"], activation_alpha=[-0.5]),
     f"GRUGrad: activation LeakyRelu has alpha -0.5, {BELOW}"),
    ("GRUGrad", gru_grad_inputs(grad_Ht=zeros(1, N, H)), dict(activations=["Elu", "Tanh"], activation_alpha=[-1.0]),
     f"GRUGrad: activation Elu has alpha -1, {BELOW}"),
    ("GRUGrad", gru_grad_inputs(ZRH=zeros(S, 1, N, 14), grad_Ht=zeros(1, N, H)), {},
     "GRUGrad: input ZRH has shape [3, 1, 2, 14], expected [S, D, N, 3*H] with S = 3 (from X), D = 1 (from W), "
     "N = 2 (from X), H = 5 (from W)"),
]  # fmt: skip


@pytest.mark.parametrize(("op", "inputs", "attributes", "text"), WRONG, ids=[w[3] for w in WRONG])
def test_numpy_host_refuses(op, inputs, attributes, text):
    kernel = getattr(kernels, contracts()[op].python_name)
    with pytest.raises(onnxgrad.ContractError) as error:
        kernel(**inputs, **attributes)
    assert str(error.value) == text


@pytest.mark.parametrize(("op", "inputs", "attributes", "text"), WRONG, ids=[w[3] for w in WRONG])
def test_onnxruntime_host_refuses(op, inputs, attributes, text):
    contract = contracts()[op]
    model = node_model(
        contract, inputs, attributes, [t.name for t in contract.outputs], name="the node"
    )
    with pytest.raises(Exception, match="'the node'") as error:
        onnxgrad.session(model).run(None, inputs)
    assert text in str(error.value)


def test_lengths_of_any_integer_type_are_taken_and_checked():
    inputs = lstm_inputs(SL=np.array([1, 2], np.int64))
    assert kernels.lstm_training(**inputs).HAll.shape == (S, 1, N, H)
    with pytest.raises(onnxgrad.ContractError, match="which does not fit into int32"):
        kernels.lstm_training(**lstm_inputs(SL=np.array([1, 2**40], np.int64)))
