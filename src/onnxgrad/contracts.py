"""The contracts of onnxgrad's operators, read from the native module: names, shapes, types, attributes.

>>> from onnxgrad.contracts import contracts
>>> contracts()["ReluGrad"].formula
'dX = X > 0 ? dY : 0'
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from onnxgrad import _native

DOMAIN = "com.microsoft"
OPSET = 1


@dataclass(frozen=True)
class Tensor:
    """An input or output: `type` is T (float32 or float64), I (int32 or int64) or a dtype."""

    name: str
    type: str
    dims: str
    optional: bool
    doc: str

    @property
    def spec(self) -> str:
        """The type and the dims as they stand in the contract, such as `T[S, N, 4*H]`."""
        return self.type + self.dims


@dataclass(frozen=True)
class Attribute:
    """An attribute; `default` is None when there is none. Its integers are from `least` to `most`."""

    name: str
    kind: str
    default: Any
    accepted: tuple[str, ...]
    doc: str
    least: int
    most: int


@dataclass(frozen=True)
class Accuracy:
    """The largest error that the tests allow, and how it is measured."""

    measure: str
    float32: float
    float64: float


@dataclass(frozen=True)
class Contract:
    """What an operator takes and gives."""

    name: str
    summary: str
    formula: str
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    attributes: tuple[Attribute, ...]
    accuracy: Accuracy
    own_accuracies: Mapping[str, Accuracy]
    inplace: tuple[int, int] | None

    @property
    def python_name(self) -> str:
        """The name in `onnxgrad.kernels`."""
        return snake_case(self.name)

    @property
    def attribute_names(self) -> tuple[str, ...]:
        """What a node may set: a list of strings also travels as one string, `<name>_text`.

        Runtimes before 1.25 cannot give a list of strings to a custom operator.
        """
        names = [a.name for a in self.attributes]
        lists = [a.name for a in self.attributes if a.kind == "a list of strings"]
        return (*names, *(f"{name}_text" for name in lists))

    def accuracy_of(self, output: str) -> Accuracy:
        """Its own where it has one, the operator's otherwise."""
        return self.own_accuracies.get(output, self.accuracy)


def snake_case(name: str) -> str:
    """`BiasGeluGrad_dX` → `bias_gelu_grad_dx`, `LSTMGrad` → `lstm_grad`.

    >>> snake_case("LogSoftmaxGrad_13")
    'log_softmax_grad_13'
    """
    letters = []
    for i, letter in enumerate(name):
        after_word = i > 0 and (name[i - 1].islower() or name[i - 1].isdigit())
        before_word = 0 < i < len(name) - 1 and name[i - 1].isupper() and name[i + 1].islower()
        if letter.isupper() and (after_word or before_word) and name[i - 1] != "_":
            letters.append("_")
        letters.append(letter.lower())
    return "".join(letters).replace("_d_x", "_dx")


def _contract(data: dict[str, Any]) -> Contract:
    return Contract(
        name=data["name"],
        summary=data["summary"],
        formula=data["formula"],
        inputs=tuple(Tensor(*t) for t in data["inputs"]),
        outputs=tuple(Tensor(*t) for t in data["outputs"]),
        attributes=tuple(
            Attribute(name, kind, default, tuple(accepted), doc, least, most)
            for name, kind, default, accepted, doc, least, most in data["attributes"]
        ),
        accuracy=Accuracy(*data["accuracy"]),
        own_accuracies={k: Accuracy(*a) for k, a in data["own_accuracies"].items()},
        inplace=data["inplace"],
    )


@functools.cache
def contracts() -> MappingProxyType[str, Contract]:
    """Every operator's contract by its ONNX name, in the order of `ops.inc`."""
    found = (_contract(kernel.contract()) for kernel in _native.kernels())
    return MappingProxyType({c.name: c for c in found})
