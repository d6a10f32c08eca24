"""Random graphs: the gradient of whatever can be put together agrees with central differences.

Values are small matrices in float64; operators are smooth, so that differences are sharp. Graphs have shared weights,
initializers that are outputs, values that nobody uses, branches, loops, named dimensions, and several opsets.
"""

from __future__ import annotations

import numpy as np
import onnx
from autodiff.harness import make_session
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from onnxgrad.autodiff import vjp

DOUBLE = TensorProto.DOUBLE
SIZES = (1, 2, 3)
STEP = 1e-5

UNARY = (
    "Tanh",
    "Sigmoid",
    "Sin",
    "Cos",
    "Neg",
    "Identity",
    "Exp",
)  # what onnxruntime has for double
BINARY = ("Add", "Sub", "Mul", "Sum3", "Div")
REDUCE = ("ReduceMean", "ReduceSum", "ReduceSumSquare", "ReduceLogSumExp")


class Graph:
    """A graph under construction, each value with its shape."""

    def __init__(self, data, opset):
        self.data, self.opset = data, opset
        self.rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1), "numbers"))
        self.nodes, self.initializers, self.shapes = [], {}, {}
        self.count = 0

    def pick(self, options, what):
        return self.data.draw(st.sampled_from(list(options)), what)

    def fresh(self, stem="v"):
        self.count += 1
        return f"{stem}{self.count}"

    def ints(self, *numbers):
        name = self.fresh("i")
        self.initializers[name] = np.array(numbers, np.int64)
        return name

    def weight(self, shape):
        name = self.fresh("w")
        self.initializers[name] = self.rng.uniform(-1, 1, shape)
        self.shapes[name] = tuple(shape)
        return name

    def add(self, op, inputs, shape, outputs=1, **attributes):
        names = [self.fresh() for _ in range(outputs)]
        self.nodes.append(helper.make_node(op, inputs, names, **attributes))
        for name in names:
            self.shapes[name] = tuple(shape)
        return names[0]

    def value(self):
        return self.pick(self.shapes, "value")

    # ---- one method per kind of step

    def unary(self):
        x, op = self.value(), self.pick(UNARY, "unary")
        x = (
            self.add("Sin", [x], self.shapes[x]) if op == "Exp" else x
        )  # of large numbers it is huge
        return self.add(op, [x], self.shapes[x])

    def binary(self):
        """The second operand is another value, or a weight that is broadcast."""
        x = self.value()
        shape = self.shapes[x]
        others = [v for v, s in self.shapes.items() if s == shape]
        other = self.pick(others, "operand")
        if self.pick((True, False), "broadcast"):
            narrow = [n if self.pick((True, False), "keep") else 1 for n in shape]
            other = self.weight(narrow[self.pick(range(len(shape) + 1), "lead") :])
        op = self.pick(BINARY, "binary")
        if op == "Div":  # by something between 1 and 3
            positive = self.add("Cos", [other], self.shapes[other])
            two = self.weight(())
            self.initializers[two] = np.array(2.0)
            other = self.add("Add", [positive, two], self.shapes[other])
        inputs = [x, other, x] if op.endswith("3") else [x, other]
        return self.add(op.rstrip("3"), inputs, shape)

    def product(self):
        x = self.value()
        shape = self.shapes[x]
        if len(shape) < 2:
            return self.unary()
        n = self.pick(SIZES, "columns")
        return self.add("MatMul", [x, self.weight((shape[-1], n))], (*shape[:-1], n))

    def reduce(self):
        x = self.value()
        shape = self.shapes[x]
        if not shape:
            return self.unary()
        axis, keep = self.pick(range(len(shape)), "axis"), self.pick((0, 1), "keepdims")
        op = self.pick(REDUCE, "reduce")
        result = [1 if i == axis else n for i, n in enumerate(shape) if keep or i != axis]
        if op != "ReduceSum" and self.opset < 18:
            return self.add(op, [x], result, axes=[axis], keepdims=keep)
        return self.add(op, [x, self.ints(axis)], result, keepdims=keep)

    def move(self):
        """Transpose, Reshape, Slice, Concat, Gather, Softmax or Expand."""
        x = self.value()
        shape = self.shapes[x]
        if not shape:
            return self.unary()
        axis = self.pick(range(len(shape)), "axis")
        kind = self.pick(
            ("Transpose", "Reshape", "Slice", "Concat", "Gather", "Softmax", "Pad"), "move"
        )
        if kind == "Transpose":
            perm = self.data.draw(st.permutations(range(len(shape))), "perm")
            return self.add(kind, [x], [shape[p] for p in perm], perm=list(perm))
        if kind == "Reshape":
            return self.add(kind, [x, self.ints(-1)], (int(np.prod(shape)),))
        if kind == "Softmax":
            return self.add(kind, [x], shape, axis=axis)
        if kind == "Slice":
            start = self.pick(range(shape[axis]), "start")
            sizes = [n - start if i == axis else n for i, n in enumerate(shape)]
            bounds = [self.ints(start), self.ints(99), self.ints(axis)]
            return self.add(kind, [x, *bounds], sizes)
        if kind == "Concat":
            sizes = [2 * n if i == axis else n for i, n in enumerate(shape)]
            return self.add(kind, [x, x], sizes, axis=axis)
        if kind == "Pad":
            pads = [0] * 2 * len(shape)
            pads[axis] = 1
            sizes = [n + 1 if i == axis else n for i, n in enumerate(shape)]
            return self.add(kind, [x, self.ints(*pads)], sizes)
        rows = [self.pick(range(shape[axis]), "row") for _ in range(2)]
        sizes = [2 if i == axis else n for i, n in enumerate(shape)]
        return self.add(kind, [x, self.ints(*rows)], sizes, axis=axis)

    def branch(self):
        """An If whose bodies read outer values, and use the same names."""
        x = self.value()
        shape = self.shapes[x]
        w, go = self.weight(shape), self.fresh("c")
        self.initializers[go] = np.array(self.pick((True, False), "condition"))
        flag = self.fresh("flag")
        # not a constant to the builder: computed from an input of the run
        self.nodes.append(helper.make_node("And", [go, "yes"], [flag]))
        bodies = {}
        for side, op in (("then_branch", "Tanh"), ("else_branch", "Sin")):
            nodes = [
                helper.make_node(op, [x], ["inner"]),
                helper.make_node("Mul", ["inner", w], ["result"]),
            ]
            out = helper.make_tensor_value_info("result", DOUBLE, shape)
            bodies[side] = helper.make_graph(nodes, side, [], [out])
        return self.add("If", [flag], shape, **bodies)

    def loop(self):
        x = self.value()
        shape = self.shapes[x]
        w, trips, go = self.weight(shape), self.fresh("n"), self.fresh("c")
        self.initializers[trips] = np.array(self.pick((0, 1, 3), "trips"))
        self.initializers[go] = np.array(True)
        info = helper.make_tensor_value_info
        nodes = [
            helper.make_node("Identity", ["go"], ["goes_on"]),
            helper.make_node("Mul", ["state", w], ["inner"]),
            helper.make_node("Sin", ["inner"], ["result"]),
        ]
        inputs = [
            info("number", TensorProto.INT64, []),
            info("go", TensorProto.BOOL, []),
            info("state", DOUBLE, shape),
        ]
        outputs = [info("goes_on", TensorProto.BOOL, []), info("result", DOUBLE, shape)]
        body = helper.make_graph(nodes, "body", inputs, outputs)
        return self.add("Loop", [trips, go, x], shape, body=body)


@st.composite
def models(draw):
    """A model, its feeds, and the names to differentiate by."""
    data = draw(st.data())
    graph = Graph(data, data.draw(st.sampled_from((16, 18, 21)), "opset"))
    inputs = []
    for name in ("a", "b"):
        shape = tuple(data.draw(st.lists(st.sampled_from(SIZES), min_size=1, max_size=3), "shape"))
        graph.shapes[name] = shape
        named = [
            f"{name}{i}" if graph.pick((True, False), "named") else n for i, n in enumerate(shape)
        ]
        inputs.append(helper.make_tensor_value_info(name, DOUBLE, named))
    inputs.append(helper.make_tensor_value_info("yes", TensorProto.BOOL, []))
    kinds = ("unary", "binary", "binary", "product", "reduce", "move", "move", "branch", "loop")
    for _ in range(data.draw(st.integers(1, 12), "size")):
        getattr(graph, graph.pick(kinds, "step"))()
    feeds = {n: graph.rng.uniform(-1, 1, graph.shapes[n]) for n in ("a", "b")}
    made = [v for n in graph.nodes for v in n.output if v in graph.shapes]
    # the last value, any other, and a weight where there is one: initializers may be outputs
    outputs = list(dict.fromkeys([made[-1], graph.pick(graph.shapes, "another output")]))
    infos = [
        helper.make_tensor_value_info(o, DOUBLE, [None] * len(graph.shapes[o])) for o in outputs
    ]
    tensors = [numpy_helper.from_array(v, n) for n, v in graph.initializers.items()]
    proto = helper.make_graph(graph.nodes, "random", inputs, infos, tensors)
    imports = [helper.make_opsetid("", graph.opset)]
    model = helper.make_model(proto, opset_imports=imports, ir_version=8)
    weights = [n for n, v in graph.initializers.items() if v.dtype == np.float64]
    wrt = data.draw(st.lists(st.sampled_from(["a", "b", *weights]), min_size=1, unique=True), "wrt")
    return model, {**feeds, "yes": np.array(True)}, wrt


@settings(suppress_health_check=list(HealthCheck))
@given(models())
def test_property_gradients_of_random_graphs(case):
    """⟨gradient, direction⟩ = the difference along it, for all of `wrt` at once, fused and standard."""
    model, feeds, wrt = case
    onnx.checker.check_model(model)
    weights = {t.name: numpy_helper.to_array(t) for t in model.graph.initializer}
    point = {n: feeds.get(n, weights.get(n)) for n in wrt}
    rng = np.random.default_rng(3)
    forward = _movable(model, wrt)
    values = forward(feeds, point)
    cotangents = {f"{n}_grad": rng.uniform(-1, 1, v.shape) for n, v in values.items()}
    direction = {n: rng.uniform(-1, 1, v.shape) for n, v in point.items()}

    def loss(t):
        moved = {n: np.asarray(v + t * direction[n]) for n, v in point.items()}
        return sum(np.sum(v * cotangents[f"{n}_grad"]) for n, v in forward(feeds, moved).items())

    expected = (loss(STEP) - loss(-STEP)) / (2 * STEP)
    for ops in ("standard", "fused"):
        session = make_session(vjp(model, wrt=wrt, ops=ops))
        known = {i.name for i in session.get_inputs()}
        given = {k: v for k, v in {**feeds, **cotangents}.items() if k in known}
        # by place: an input that is an output, too, has a gradient of another name
        results = dict(zip(wrt, session.run(None, given)[-len(wrt) :], strict=True))
        found = sum(np.sum(g * direction[n]) for n, g in results.items())
        scale = max(1.0, abs(expected), *(np.abs(g).max(initial=0) for g in results.values()))
        assert abs(found - expected) <= 1e-6 * scale, f"{ops}: {found}, differences give {expected}"
        for name, gradient in results.items():
            assert gradient.shape == point[name].shape, name


def _movable(model, wrt):
    """The forward model, with the weights of `wrt` as inputs."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    for tensor in list(copy.graph.initializer):
        if tensor.name in wrt:
            info = helper.make_tensor_value_info(tensor.name, tensor.data_type, list(tensor.dims))
            copy.graph.input.append(info)
            copy.graph.initializer.remove(tensor)
    session = make_session(copy)
    names = [o.name for o in session.get_outputs()]
    known = {i.name for i in session.get_inputs()}

    def run(feeds, point):
        given = {k: v for k, v in {**feeds, **point}.items() if k in known}
        return dict(zip(names, session.run(None, given), strict=True))

    return run
