"""How a rule is judged: a case is a row in a table, and finite differences are the judge.

A case names an operator, says what is special about it, and gives inputs and attributes by their
ONNX names. NumPy arrays are inputs; everything else is an attribute:

    RuleCase("Gemm", "A transposed", A=normal(4, 3), B=normal(4, 5), C=normal(5), transA=1)

Each case is built as a model of one node in float64, at several opsets, with static and with
dynamic shapes. The gradient of every float input is compared with central differences along
random directions; fused operators are compared with standard ones.
To add a case, add a row to a table of `rules/test_<family>.py`.
"""

from __future__ import annotations

import copy
import math
import zlib
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
import onnx.reference
import onnxruntime
import pytest
from autodiff.exact import EXACT, Conv, ConvTranspose
from onnx import TensorProto, helper, numpy_helper
from onnx.reference.op_run import OpRun

import onnxgrad.ort
from onnxgrad.autodiff import vjp
from onnxgrad.graph.schemas import signature, versions

STEP = 1e-5  # of the central difference: its error is STEP² plus rounding/STEP, both below 1e-9
OPSETS = (16, 18, 21)


@dataclass
class RuleCase:
    """One node to differentiate. `opsets` below an operator's first version are passed over."""

    op: str
    what: str
    inputs: dict[str, Any] = field(default_factory=dict)
    attributes: dict[str, Any] = field(default_factory=dict)
    domain: str = ""
    outputs: Any = 1  # how many; their types, for an operator that ONNX does not know
    opsets: tuple[int, ...] = OPSETS
    wrt: tuple[str, ...] | None = None
    shapes: tuple[str, ...] = ("static", "dynamic")
    computed: bool = False
    rtol: float = 1e-6
    dtype: Any = np.float64
    why: str = ""

    def __init__(self, op: str, what: str, **given: Any):
        self.op, self.what = op, what
        self.inputs, self.attributes = {}, {}
        for name in (
            "domain",
            "outputs",
            "opsets",
            "wrt",
            "shapes",
            "computed",
            "rtol",
            "dtype",
            "why",
        ):
            setattr(self, name, given.pop(name, type(self).__dict__[name]))
        for name, value in given.items():
            (self.inputs if _is_input(value) else self.attributes)[name] = value
        assert self.rtol == 1e-6 or self.why, f"{self}: a wider tolerance needs a why"

    def __str__(self) -> str:
        return f"{self.op}: {self.what}"


def normal(*shape: int, seed: int = 0, scale: float = 1.0) -> np.ndarray:
    """Standard normal numbers, the same ones at every run."""
    key = zlib.crc32(repr((shape, seed)).encode())
    return scale * np.random.default_rng(key).standard_normal(shape)


def positive(*shape: int, seed: int = 0, low: float = 0.5, high: float = 2.0) -> np.ndarray:
    """Numbers between `low` and `high`."""
    key = zlib.crc32(repr((shape, seed, "positive")).encode())
    return np.random.default_rng(key).uniform(low, high, shape)


def distinct(*shape: int, seed: int = 0) -> np.ndarray:
    """Numbers that differ by at least 0.1, in random order: no ties, no kinks at 0."""
    key = zlib.crc32(repr((shape, seed, "distinct")).encode())
    n = int(np.prod(shape))
    return (np.random.default_rng(key).permutation(n).reshape(shape) - n / 2 + 0.25) * 0.1


def ints(*numbers: int) -> np.ndarray:
    """An int64 vector."""
    return np.array(numbers, np.int64)


def table(cases: list[RuleCase]) -> Any:
    """Parametrize a test over cases, opsets, and static or dynamic shapes."""
    rows = []
    for case in cases:
        foreign = case.domain or not versions(case.op)
        found = [v for v in case.opsets if foreign or signature(case.op, v)]
        for opset in dict.fromkeys(found):
            for shapes in case.shapes:
                rows.append(pytest.param(case, opset, shapes, id=f"{case} [{opset}, {shapes}]"))
    return pytest.mark.parametrize(("case", "opset", "shapes"), rows)


def check(case: RuleCase, opset: int, shapes: str, ops: str = "standard") -> None:
    """Assert that the gradient of every float input agrees with central differences."""
    model, feeds, wrt = build(case, opset, shapes)
    check_model(model, feeds, wrt, ops, case.rtol, STEP if case.dtype == np.float64 else 1e-2)


def check_model(model, feeds, wrt, ops="standard", rtol=1e-6, step=STEP) -> None:
    """Assert that the gradients of the inputs `wrt` agree with central differences."""
    gradient = vjp(model, wrt=wrt, ops=ops)
    expect_no_racing_scatter(gradient)
    if ops == "standard" and not any(n.domain for n in model.graph.node):
        assert not any(n.domain for n in gradient.graph.node), "standard operators only"
    if all(o.type.tensor_type.HasField("shape") for o in model.graph.output):
        onnx.checker.check_model(gradient, full_check=ops == "standard")
    forward = evaluator(model)
    backward = evaluator(gradient) if ops == "standard" else fused_evaluator(gradient)
    names = [o.name for o in model.graph.output if o.type.tensor_type.elem_type in _FLOAT]
    values = dict(zip([o.name for o in model.graph.output], forward(feeds), strict=True))
    rng = np.random.default_rng(7)
    cotangents = {f"{n}_grad": _like(rng, values[n]) for n in names}
    results = backward({**feeds, **cotangents})
    gradients = dict(zip([o.name for o in gradient.graph.output], results, strict=True))
    for name in wrt:
        got = gradients[f"{name}_grad"]
        assert got.shape == feeds[name].shape, f"gradient of {name} has shape {got.shape}"
        assert got.dtype == feeds[name].dtype
        for _ in range(2):
            u = _like(rng, feeds[name])
            expected = _difference(forward, feeds, name, u, names, cotangents, model, step)
            found = float(np.sum(got * u))
            scale = max(1.0, abs(expected), float(np.linalg.norm(got)))
            assert abs(found - expected) <= rtol * scale, (
                f"gradient of {name}: {found} along a random direction, "
                f"central differences give {expected}"
            )


def expect_no_racing_scatter(gradient: onnx.ModelProto) -> None:
    """onnxruntime's ScatterND adds from several threads without locks, and loses updates."""
    for node in gradient.graph.node:
        reduction = [a.s for a in node.attribute if a.name == "reduction"]
        written = node.op_type == "ScatterND" and node.name.startswith("grad/")
        assert not (written and reduction not in ([], [b"none"])), node.name


def agree(case: RuleCase, opset: int, shapes: str = "static", rtol: float = 2e-5) -> None:
    """Assert that fused operators give what standard ones give, in float32."""
    case = copy.copy(case)
    case.dtype = np.float32
    model, feeds, wrt = build(case, opset, shapes)
    fused, standard = (vjp(model, wrt=wrt, ops=ops) for ops in ("fused", "standard"))
    run_fused = fused_evaluator(fused)
    rng = np.random.default_rng(7)
    outputs = zip(model.graph.output, evaluator(model)(feeds), strict=True)
    cotangents = {
        f"{o.name}_grad": _like(rng, v)
        for o, v in outputs
        if o.type.tensor_type.elem_type in _FLOAT
    }
    pairs = zip(
        run_fused({**feeds, **cotangents}),
        evaluator(standard)({**feeds, **cotangents}),
        strict=True,
    )
    for output, (got, expected) in zip(fused.graph.output, pairs, strict=True):
        scale = max(1.0, float(np.abs(expected).max(initial=0)))
        np.testing.assert_allclose(got, expected, atol=rtol * scale, rtol=0, err_msg=output.name)


def fused_evaluator(model: onnx.ModelProto):
    """Return a function from feeds to outputs, for a gradient that uses onnxgrad's operators."""
    assert any(n.domain == "com.microsoft" and "Grad" in n.op_type for n in model.graph.node)
    session = make_session(model)
    return lambda feeds: session.run(None, feeds)


def _difference(forward, feeds, name, u, names, cotangents, model, step) -> float:
    def projected(t: float) -> float:
        moved = np.asarray(feeds[name] + t * u, feeds[name].dtype)
        outputs = forward({**feeds, name: moved})
        by_name = dict(zip([o.name for o in model.graph.output], outputs, strict=True))
        return sum(
            float(np.sum(by_name[n].astype(np.float64) * cotangents[f"{n}_grad"])) for n in names
        )

    return (projected(step) - projected(-step)) / (2 * step)


def build(case: RuleCase, opset: int, shapes: str):
    """Return a model of one node, its feeds, and the names of the inputs to differentiate."""
    sig = signature(case.op, opset, case.domain)
    order = list(sig.inputs) if sig else list(case.inputs)
    feeds, names, infos, initializers = {}, [], [], []
    for name in order:
        given = case.inputs.get(name)
        for i, array in enumerate(given if isinstance(given, list) else [given]):
            if array is None:
                names.append("")
                continue
            own = f"{name}_{i}" if isinstance(given, list) else name
            array = np.asarray(array)
            if array.dtype == np.float64:
                array = array.astype(case.dtype)
            names.append(own)
            kind = helper.np_dtype_to_tensor_dtype(array.dtype)
            if array.dtype.kind != "f" and not case.computed:
                initializers.append(numpy_helper.from_array(array, own))
                continue
            feeds[own] = array
            dims = array.shape if shapes == "static" else [None] * array.ndim
            infos.append(helper.make_tensor_value_info(own, kind, dims))
    while names and not names[-1]:
        names.pop()
    attributes = dict(case.attributes)
    for name in set(case.inputs) - set(order):  # an input that this version has as an attribute
        assert name in sig.attributes, f"{case}: no input {name!r}"
        attributes[name] = np.asarray(case.inputs[name]).tolist()
    count = case.outputs if isinstance(case.outputs, int) else len(case.outputs)
    outputs = [f"out_{i}" for i in range(count)]
    node = helper.make_node(case.op, names, outputs, name="node", domain=case.domain, **attributes)
    wrt = [n for n, a in feeds.items() if a.dtype.kind == "f"]
    if case.wrt is not None:
        wrt = [n for n in wrt if n.split("_")[0] in case.wrt or n in case.wrt]
    kinds = [np.dtype(case.dtype)] * count if isinstance(case.outputs, int) else case.outputs
    kinds = [helper.np_dtype_to_tensor_dtype(np.dtype(k)) for k in kinds]
    model = _model([node], infos, dict(zip(outputs, kinds, strict=True)), initializers, opset,
                   case.domain)  # fmt: skip
    return model, feeds, wrt


def _model(nodes, inputs, outputs, initializers, opset, domain=""):
    free = [onnx.ValueInfoProto(name=o) for o in outputs]
    graph = helper.make_graph(nodes, "case", inputs, free, initializers)
    imports = [helper.make_opsetid("", opset)]
    imports += [helper.make_opsetid(domain, 1)] if domain else []
    model = helper.make_model(graph, opset_imports=imports, ir_version=8 if opset < 19 else 10)
    inferred = onnx.shape_inference.infer_shapes(model)
    for i, info in enumerate(model.graph.output):
        found = inferred.graph.output[i]
        if found.type.HasField("tensor_type") and found.type.tensor_type.elem_type:
            info.CopyFrom(found)
        else:  # an operator that ONNX does not know
            info.CopyFrom(helper.make_tensor_value_info(info.name, outputs[info.name], None))
    return model


def evaluator(model: onnx.ModelProto):
    """Return a function from feeds to outputs: onnxruntime, or ONNX's reference evaluator.

    onnxruntime has no float64 kernel for some operators (Conv, ConvTranspose, …); the reference
    evaluator has. Where neither has one, the node is computed by `exact.py`.
    """
    double = any(i.type.tensor_type.elem_type == TensorProto.DOUBLE for i in model.graph.input)
    exact = next((n for n in model.graph.node if (n.domain, n.op_type) in EXACT), None)
    if double and exact is not None:
        return _with_exact(model, exact)
    try:
        session = make_session(model)
    except Exception as error:
        gaps = ("NOT_IMPLEMENTED", "NotImplemented", "Batchwise recurrent operations")
        if not any(gap in f"{type(error).__name__}: {error}" for gap in gaps):
            raise
        reference = onnx.reference.ReferenceEvaluator(
            model, new_ops=[Conv, ConvTranspose, Erf, Gelu, Pad]
        )
        return lambda feeds: reference.run(None, feeds)
    return lambda feeds: session.run(None, feeds)


def _with_exact(model: onnx.ModelProto, node: onnx.NodeProto):
    """Compute one node in NumPy, and all that comes before and after it as `evaluator` does."""
    before = _up_to(model, node)
    kept = {t.name: numpy_helper.to_array(t) for t in model.graph.initializer}
    attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
    attributes = {k: _text(v) for k, v in attributes.items()}
    rest = onnx.ModelProto()
    rest.CopyFrom(model)
    rest.graph.node.remove(node)
    used = {name for n in rest.graph.node for name in n.input}
    made = [name for name in node.output if name]
    given = [helper.make_tensor_value_info(n, TensorProto.DOUBLE, None) for n in made if n in used]
    rest.graph.input.extend(given)
    outputs = [o for o in rest.graph.output if o.name not in made]
    del rest.graph.output[:]
    rest.graph.output.extend(outputs)
    follow = evaluator(rest) if outputs else lambda feeds: []

    def run(feeds):
        values = {"": None, **kept, **feeds, **before(feeds)}
        results = EXACT[node.domain, node.op_type](*(values[n] for n in node.input), **attributes)
        values = dict(zip(node.output, results, strict=False))
        more = follow({**feeds, **{i.name: values[i.name] for i in given}})
        values.update(zip((o.name for o in outputs), more, strict=True))
        return [values[o.name] for o in model.graph.output]

    return run


def _up_to(model: onnx.ModelProto, node: onnx.NodeProto):
    """Return a function from feeds to the values that a node reads and other nodes make."""
    makers = {name: n for n in model.graph.node for name in n.output}
    wanted = [name for name in dict.fromkeys(node.input) if name in makers]
    if not wanted:
        return lambda feeds: {}
    part = onnx.ModelProto()
    part.CopyFrom(model)
    del part.graph.output[:]
    infos = [helper.make_tensor_value_info(n, TensorProto.DOUBLE, None) for n in wanted]
    part.graph.output.extend(infos)
    needed, waiting = [], list(wanted)
    while waiting:
        maker = makers.get(waiting.pop())
        if maker is not None and maker not in needed:
            needed.append(maker)
            waiting.extend(maker.input)
    del part.graph.node[:]
    part.graph.node.extend(n for n in model.graph.node if n in needed)
    used = {name for n in needed for name in n.input}
    inputs = [i for i in part.graph.input if i.name in used]
    del part.graph.input[:]
    part.graph.input.extend(inputs)
    run = evaluator(part)
    return lambda feeds: dict(
        zip(wanted, run({i.name: feeds[i.name] for i in inputs}), strict=True)
    )


def _text(value: Any) -> Any:
    if isinstance(value, list):
        return [_text(v) for v in value]
    return value.decode() if isinstance(value, bytes) else value


class Erf(OpRun):
    """The reference evaluator's own Erf rounds to float32."""

    op_domain = ""

    def _run(self, x):
        return (np.vectorize(math.erf, otypes=[x.dtype])(x),)


class Gelu(OpRun):
    """As Erf."""

    op_domain = ""

    def _run(self, x, approximate="none"):
        if approximate == "tanh":
            inner = math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)
            return (x / 2 * (1 + np.tanh(inner)),)
        return (x / 2 * (1 + np.vectorize(math.erf, otypes=[x.dtype])(x / math.sqrt(2))),)


class Pad(OpRun):
    """The reference evaluator's own Pad takes no negative amounts."""

    op_domain = ""

    def _run(self, x, pads, value=None, axes=None, mode="constant"):
        assert mode == "constant"
        assert axes is None
        begin, end = pads[: x.ndim], pads[x.ndim :]
        kept = tuple(
            slice(max(-b, 0), n - max(-e, 0)) for b, e, n in zip(begin, end, x.shape, strict=True)
        )
        amounts = [(max(b, 0), max(e, 0)) for b, e in zip(begin, end, strict=True)]
        fill = 0 if value is None or np.size(value) == 0 else float(np.asarray(value).reshape(()))
        return (np.pad(x[kept], amounts, constant_values=fill),)


def make_session(model: onnx.ModelProto) -> onnxruntime.InferenceSession:
    """Open a session on one thread, with onnxgrad's operators."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    onnxgrad.ort.register(options)
    return onnxruntime.InferenceSession(model.SerializeToString(), options)


_FLOAT = (TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16)


def _is_input(value: Any) -> bool:
    if isinstance(value, list):
        return bool(value) and all(isinstance(v, np.ndarray) for v in value)
    return isinstance(value, (np.ndarray, np.generic)) or value is None


def _like(rng: np.random.Generator, array: np.ndarray) -> np.ndarray:
    return np.asarray(rng.standard_normal(array.shape), array.dtype)
