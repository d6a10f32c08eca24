"""Small graphs of operators that only the old package has, with what they mean in NumPy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import onnx
from onnx import helper

RANDOM = np.random.RandomState(7)
OURS = "com.microsoft"
KINDS = {np.dtype(np.float32): 1, np.dtype(np.int64): 7, np.dtype(np.int32): 6, np.dtype(bool): 9,
         np.dtype(np.float64): 11}  # fmt: skip


@dataclass
class OldCase:
    title: str
    op: str
    inputs: dict[str, np.ndarray]
    outputs: dict[str, Callable[..., np.ndarray]]  # of the inputs, by position
    attributes: dict = field(default_factory=dict)
    old_runs_it: bool = True  # the old package has a kernel for the CPU

    def expected(self) -> list[np.ndarray]:
        return [f(*self.inputs.values()) for f in self.outputs.values()]

    def model(self) -> onnx.ModelProto:
        node = helper.make_node(
            self.op,
            list(self.inputs),
            list(self.outputs),
            name="it",
            domain=OURS,
            **self.attributes,
        )
        values = [
            helper.make_tensor_value_info(n, KINDS[a.dtype], a.shape)
            for n, a in self.inputs.items()
        ]
        results = [
            helper.make_tensor_value_info(n, KINDS[a.dtype], [None] * a.ndim)
            for n, a in zip(self.outputs, self.expected(), strict=True)
        ]
        graph = helper.make_graph([node], "case", values, results)
        opsets = [helper.make_opsetid("", 15), helper.make_opsetid(OURS, 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def floats(*shape: int) -> np.ndarray:
    return RANDOM.standard_normal(shape).astype(np.float32)


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def axes_of(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The axes along which a shape `a` is repeated to meet `b`, from the text of broadcasting."""
    rank = max(len(a), len(b))
    a, b = ([1] * (rank - len(s)) + list(s) for s in (a, b))
    return np.array([i for i in range(rank) if a[i] == 1 and b[i] != 1], np.int64)


def broadcast(title: str, a: tuple, b: tuple) -> OldCase:
    outputs = {"a_axes": axes_of, "b_axes": lambda a, b: axes_of(b, a)}
    return OldCase(title, "BroadcastGradientArgs", {"a": ints(*a), "b": ints(*b)}, outputs)


def quantised(x, scale, zero):
    return np.round(x / scale) + zero


def unflatten(x, indices, dims):
    out = np.zeros((int(np.prod(dims)), *x.shape[1:]), x.dtype)
    out[indices] = x
    return out.reshape(*dims, *x.shape[1:])


def norm(*arrays):
    return np.array(np.sqrt(sum(np.square(a.astype(np.float64)).sum() for a in arrays)), np.float32)


same = lambda x: x  # noqa: E731
first = lambda *arrays: arrays[0]  # noqa: E731
X, Y = floats(3, 4), floats(3, 4)

CASES = [
    OldCase("by an integer", "Scale", {"x": X, "s": np.array(3)}, {"y": lambda x, s: x / 3}, {"scale_down": 1}),
    OldCase("by a float", "Scale", {"x": X, "s": np.float32([2.5])}, {"y": lambda x, s: x * np.float32(2.5)}),
    OldCase("of two", "ScaledSum", {"a": X, "b": Y}, {"y": lambda a, b: 2 * a - 3 * b},
         {"scale_0": 2.0, "scale_1": -3.0}, old_runs_it=False),
    OldCase("of three", "ScaledSum", {"a": X, "b": Y, "c": X + 1}, {"y": lambda a, b, c: a + b / 2 + 4 * c},
         {"scale_0": 1.0, "scale_1": 0.5, "scale_2": 4.0}, old_runs_it=False),
    OldCase("two results", "BatchScale", {"x": X}, {"y": lambda x: 2 * x, "z": lambda x: x / 4},
         {"scale_0": 2.0, "scale_1": 0.25}, old_runs_it=False),
    OldCase("with lengths", "ConcatTraining", {"a": floats(2, 3), "b": floats(2, 5)},
         {"y": lambda a, b: np.concatenate([a, b], 1), "n": lambda a, b: ints(3, 5)}, {"axis": 1}),
    OldCase("a negative axis, without lengths", "ConcatTraining", {"a": floats(2, 3), "b": floats(2, 5)},
         {"y": lambda a, b: np.concatenate([a, b], -1)}, {"axis": -1}),
    OldCase("unequal parts", "SplitTraining", {"x": floats(2, 5), "s": ints(3, 2)},
         {"a": lambda x, s: x[:, :3], "b": lambda x, s: x[:, 3:]}, {"axis": 1}),
    OldCase("two axes", "ReduceSumTraining", {"x": floats(2, 3, 4), "a": ints(0, 2)},
         {"y": lambda x, a: x.sum((0, 2), keepdims=True)}, {"keepdims": 1, "noop_with_empty_axes": 1}),
    OldCase("no axes do nothing", "ReduceSumTraining", {"x": floats(2, 3, 4), "a": ints()},
         {"y": first}, {"keepdims": 1, "noop_with_empty_axes": 1}),
    broadcast("a row", (4,), (3, 4)),
    broadcast("a column", (3, 1), (3, 4)),
    broadcast("both", (3, 1, 5), (2, 1, 4, 1)),
    broadcast("equal", (3, 4), (3, 4)),
    broadcast("a scalar", (), (3, 4)),
    OldCase("of one tensor", "ReduceAllL2", {"a": X}, {"y": norm}),
    OldCase("of several tensors", "ReduceAllL2", {"a": X, "b": floats(7)}, {"y": norm}),
    OldCase("several", "PassThrough", {"a": X, "b": Y}, {"y": first, "z": lambda a, b: b}, old_runs_it=False),
    OldCase("identity", "MegatronF", {"x": X}, {"y": same}, old_runs_it=False),
    OldCase("identity", "MegatronG", {"x": X}, {"y": same}, old_runs_it=False),
    OldCase("some outside", "FakeQuant", {"x": 4 * X, "s": np.array(0.05, np.float32), "z": np.array(100, np.float32)},
         {"y": lambda x, s, z: ((np.clip(quantised(x, s, z), 0, 255) - z) * s).astype(np.float32),
          "m": lambda x, s, z: (quantised(x, s, z) >= 0) & (quantised(x, s, z) <= 255)}),
    OldCase("masked", "FakeQuantGrad", {"dy": X, "m": X > 0}, {"dx": lambda dy, m: np.where(m, dy, 0)}),
    OldCase("rows of a batch", "FlattenAndUnpad", {"x": floats(2, 3, 4), "i": ints(1, 5, 3)},
         {"y": lambda x, i: x.reshape(6, 4)[i], "d": lambda x, i: ints(2, 3)}, old_runs_it=False),
    OldCase("into a batch", "PadAndUnflatten", {"x": floats(3, 4), "i": ints(1, 5, 3), "d": ints(2, 3)},
         {"y": unflatten}, old_runs_it=False),
    OldCase("with infinities", "IsFinite", {"x": np.float32([1, np.inf, -np.inf, np.nan])},
         {"y": lambda x: np.isfinite(x)}, old_runs_it=False),
    OldCase("always done", "Group", {"x": X}, {"y": lambda x: np.array([True])}),
    OldCase("of a shape", "ZeroGradient", {"x": X, "r": X}, {"y": lambda x, r: np.zeros_like(x)}),
]  # fmt: skip
