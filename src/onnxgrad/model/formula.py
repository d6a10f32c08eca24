"""Functions of one parameter that an exporter computed beforehand: exp of a logarithm, say, which was trained."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from onnxgrad.model import origin
from onnxgrad.model.change import Change, Draft
from onnxgrad.model.roles import TYPES
from onnxgrad.notes import Note

# call -> operator, function, inverse
_FUNCTIONS: dict[str, tuple[str, Callable, Callable]] = {
    "exp": ("Exp", np.exp, np.log),
    "neg": ("Neg", np.negative, np.negative),
    "reciprocal": ("Reciprocal", np.reciprocal, np.reciprocal),
    "sigmoid": ("Sigmoid", lambda x: 1 / (1 + np.exp(-x)), lambda y: np.log(y) - np.log1p(-y)),
    "tanh": ("Tanh", np.tanh, np.arctanh),
    "log": ("Log", np.log, np.exp),
    "sqrt": ("Sqrt", np.sqrt, np.square),
}
NEAR = 1e-6  # relative: what the inverse and the function may lose of a float


@dataclass(frozen=True)
class Computed:
    """Tensor `name` of the file is the calls, in their order, of the parameter `of`."""

    name: str
    of: str
    calls: tuple[str, ...]


class Formula(Change):
    """Trains the parameter whose function a file holds, where the function has an inverse.

    The temperature of CLIP is exp(t): a step of t and one of exp(t) lead elsewhere. PyTorch's newer exporter computes
    such functions beforehand, and notes the parameter and the calls.
    """

    def __init__(self) -> None:
        self.found: list[Computed] = []

    def apply(self, model: ir.Model) -> None:
        for value in list(model.graph.initializers.values()):
            if value.dtype not in TYPES or value.const_value is None or value.is_graph_output():
                continue
            of, calls = origin.functions_of(value.name or "", value.metadata_props, _FUNCTIONS)
            if not calls or not value.uses():
                continue
            array = _inverse(value.const_value.numpy(), calls)
            if array is not None and of not in model.graph.initializers:
                _write(model, value, of, calls, array)
                self.found.append(Computed(value.name, of, calls))

    def describe(self) -> Iterable[Note]:
        for found in self.found:
            calls = " of ".join(reversed(found.calls))
            text = f"tensor {found.name!r} is the {calls} of {found.of!r}, as the exporter notes: that trains"
            yield Note("formula", found.of, text)

    def write_back(self, draft: Draft) -> None:
        for found in self.found:
            array = draft.tensors.pop(found.of, None)
            if array is not None:
                draft.tensors[found.name] = _forward(array, found.calls)


def _forward(array: np.ndarray, calls: Iterable[str]) -> np.ndarray:
    wide = np.asarray(array, np.float64)
    for call in calls:
        wide = _FUNCTIONS[call][1](wide)
    return np.asarray(wide, array.dtype)


def _inverse(array: np.ndarray, calls: tuple[str, ...]) -> np.ndarray | None:
    """Return the parameter; None where the function has forgotten it."""
    wide = np.asarray(array, np.float64)
    with np.errstate(all="ignore"):
        for call in reversed(calls):
            wide = _FUNCTIONS[call][2](wide)
        found = np.asarray(wide, array.dtype)
        again = _forward(found, calls)
    close = np.allclose(again, array, rtol=NEAR, atol=0)
    return found if np.isfinite(found).all() and close else None


def _write(
    model: ir.Model, value: ir.Value, of: str, calls: tuple[str, ...], array: np.ndarray
) -> None:
    """Put the parameter and the functions in the place of the tensor."""
    current = ir.Value(name=of, shape=value.shape, type=value.type)
    current.const_value = ir.Tensor(np.array(array, order="C"), name=of)  # a scalar stays one
    current.metadata_props[origin.FOLDED] = str([of])
    del model.graph.initializers[value.name]
    model.graph.register_initializer(current)
    nodes = []
    for call in calls:
        out = ir.Value(name=f"{value.name}/{call}", shape=value.shape, type=value.type)
        nodes.append(ir.Node("", _FUNCTIONS[call][0], [current], outputs=[out], name=out.name))
        current = out
    ir.convenience.replace_all_uses_with(value, current)
    model.graph.insert_before(next(iter(model.graph)), nodes)
