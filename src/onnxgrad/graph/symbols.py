"""The shapes of contracts: `[N, C, in...]` bound to what is known of the inputs tells the outputs.

An axis of a contract is a number (`2`), a symbol (`N`), a multiple of one (`4*H`), or a symbol that
stands for any number of axes (`in...`), of which a shape has at most one.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Sequence
from typing import Any

import onnx_ir as ir

from onnxgrad.contracts import Contract, Tensor

Dim = int | str | None
Dims = tuple[Dim, ...]
Result = tuple[ir.DataType | None, Dims | None]

_AXIS = re.compile(r"(?:(\d+)\*)?([A-Za-z_]\w*)(\.\.\.)?|(\d+)")
_CONFLICT = object()


def results(contract: Contract, inputs: Sequence[ir.Value | None]) -> list[Result]:
    """Return (dtype, shape) of every output, each None as far as the inputs do not tell it.

    A gradient that takes the shape of what it is the gradient of as an input has that shape.
    """
    given = [(t, v) for t, v in zip(contract.inputs, inputs, strict=False) if v is not None]
    types: dict[str, ir.DataType] = {}
    for spec, value in given:
        if value.dtype is not None:
            types.setdefault(spec.type, value.dtype)
    symbols = bound((axes(spec.dims), dims_of(value)) for spec, value in given)
    wanted = next((_held(value) for spec, value in given if spec.name == "shape"), None)
    return [_result(spec, symbols, types, wanted) for spec in contract.outputs]


def bound(pairs: Iterable[tuple[Sequence[tuple[int, str, bool]], Dims | None]]) -> _Symbols:
    """Return what symbols stand for in pairs of a contract's axes and a shape, None if unknown."""
    symbols = _Symbols()
    for spec, shape in pairs:
        if shape is not None:
            symbols.bind(spec, shape)
    return symbols


def _result(spec: Tensor, symbols: _Symbols, types: dict[str, ir.DataType], wanted: Dims | None):
    dtype = types.get(spec.type) if len(spec.type) == 1 else _DTYPE[spec.type]
    shape = symbols.shape(axes(spec.dims))
    return dtype, wanted if shape is None else shape


_DTYPE = {
    "int32": ir.DataType.INT32,
    "int64": ir.DataType.INT64,
    "bool": ir.DataType.BOOL,
    "float32": ir.DataType.FLOAT,
}


@functools.cache
def axes(dims: str) -> tuple[tuple[int, str, bool], ...]:
    """Return (factor, symbol, whether it is many) of every axis; a number has no symbol.

    >>> axes("[S, 4*H]")
    ((1, 'S', False), (4, 'H', False))
    """
    parts = [text.strip() for text in dims.strip("[]").split(",") if text.strip()]
    found = [_AXIS.fullmatch(part) for part in parts]
    if None in found:
        raise ValueError(f"{dims!r} is not a shape as contracts write it")
    return tuple(
        (int(m[4]), "", False) if m[4] else (int(m[1] or 1), m[2], bool(m[3])) for m in found
    )


class _Symbols:
    """What symbols stand for: a dimension, or a tuple of them for `name...`."""

    def __init__(self) -> None:
        self._known: dict[str, Any] = {}

    def bind(self, spec: Sequence[tuple[int, str, bool]], shape: Dims) -> None:
        """Learn from one input. A rank that the contract excludes teaches nothing."""
        many = [i for i, (_, _, pack) in enumerate(spec) if pack]
        if len(shape) < len(spec) - len(many) or (not many and len(shape) != len(spec)):
            return
        head = many[0] if many else len(spec)
        tail = len(shape) - (len(spec) - head - 1) if many else len(shape)
        for (factor, symbol, _), dim in zip(spec[:head], shape, strict=False):
            self._learn(symbol, _divided(dim, factor))
        if many:
            self._learn_pack(spec[head][1], shape[head:tail])
            for (factor, symbol, _), dim in zip(spec[head + 1 :], shape[tail:], strict=True):
                self._learn(symbol, _divided(dim, factor))

    def _learn(self, symbol: str, dim: Dim) -> None:
        if symbol and dim is not None:
            self._known[symbol] = _agreed(self._known.get(symbol), dim)

    def _learn_pack(self, symbol: str, dims: Dims) -> None:
        before = self._known.get(symbol)
        if before is None:
            self._known[symbol] = dims
        elif len(before) == len(dims):
            self._known[symbol] = tuple(map(_agreed, before, dims))

    def shape(self, spec: Sequence[tuple[int, str, bool]]) -> Dims | None:
        """Return an output's shape; None where not even its rank is known."""
        dims: list[Dim] = []
        for factor, symbol, pack in spec:
            known = self._known.get(symbol) if symbol else None
            if pack:
                if known is None:
                    return None
                dims.extend(None if d is _CONFLICT else d for d in known)
            elif not symbol:
                dims.append(factor)
            elif factor == 1:
                dims.append(None if known is _CONFLICT else known)
            else:
                dims.append(factor * known if isinstance(known, int) else None)
        return tuple(dims)


def _agreed(a: Any, b: Any) -> Any:
    """A number tells more than a name, a name more than nothing; two numbers are a conflict."""
    if a is None or b is None or a == b:
        return b if a is None else a
    if _CONFLICT in (a, b) or (isinstance(a, int) and isinstance(b, int)):
        return _CONFLICT
    return a if isinstance(a, int) else b if isinstance(b, int) else a


def _divided(dim: Dim, factor: int) -> Dim:
    """What `4*H` tells of H; a name tells nothing."""
    if factor == 1:
        return dim
    return dim // factor if isinstance(dim, int) and dim % factor == 0 else None


def dims_of(value: ir.Value | None) -> Dims | None:
    """Return the shape of a value as a tuple of int, str and None; None for unknown rank."""
    if value is None or value.shape is None:
        return None
    return tuple(d if isinstance(d, int) else d.value for d in value.shape)


def _held(value: ir.Value) -> Dims | None:
    """The shape that a vector of ints holds; a computed one still tells the rank by its length."""
    if value.const_value is not None and not value.is_graph_input():
        return tuple(int(n) for n in value.const_value.numpy().reshape(-1))
    if value.shape is None or len(value.shape) != 1 or not isinstance(value.shape[0], int):
        return None
    return (None,) * value.shape[0]
