"""What ONNX's own schemas say: the names of an operator's inputs, outputs and attributes."""

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from typing import Any

import onnx
from onnx.defs import OpSchema


@dataclass(frozen=True)
class Signature:
    """The names of one operator in one version. A variadic name stands for all its values."""

    op_type: str
    domain: str
    version: int
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: dict[str, Any] = field(hash=False)
    optional: frozenset[str] = frozenset()
    variadic: frozenset[str] = frozenset()
    types: tuple[str, ...] = ()
    arity: tuple[int, int] = (0, 1 << 30)
    required: tuple[str, ...] = ()

    def input_name(self, index: int) -> str:
        """Return the name of input `index`; positions past a variadic input belong to it."""
        return self.inputs[min(index, len(self.inputs) - 1)]


@functools.cache
def signature(op_type: str, opset: int, domain: str = "") -> Signature | None:
    """Return the signature of an operator in an opset, or None where ONNX has no such operator.

    >>> signature("Gemm", 18).inputs
    ('A', 'B', 'C')
    >>> signature("Gemm", 18).attributes["alpha"]
    1.0
    """
    if not onnx.defs.has(op_type, domain=domain, max_inclusive_version=opset):
        return None
    schema = onnx.defs.get_schema(op_type, max_inclusive_version=opset, domain=domain)
    formals = [*schema.inputs, *schema.outputs]
    kind = OpSchema.FormalParameterOption
    return Signature(
        op_type=op_type,
        domain=domain,
        version=schema.since_version,
        inputs=tuple(f.name for f in schema.inputs),
        outputs=tuple(f.name for f in schema.outputs),
        attributes={name: _default(a) for name, a in schema.attributes.items()},
        optional=frozenset(f.name for f in formals if f.option == kind.Optional),
        variadic=frozenset(f.name for f in formals if f.option == kind.Variadic),
        types=tuple(f.type_str for f in schema.inputs),
        arity=(schema.min_input, schema.max_input),
        required=tuple(name for name, a in schema.attributes.items() if a.required),
    )


@functools.cache
def versions(op_type: str, domain: str = "") -> tuple[int, ...]:
    """Return every opset in which an operator changed, oldest first.

    >>> versions("Softmax")
    (1, 11, 13)
    """
    return tuple(sorted(_history().get((domain, op_type), ())))


def known_operators() -> list[tuple[str, str]]:
    """Return (domain, name) of every operator that ONNX knows and has not withdrawn."""
    current = {(s.domain, s.name) for s in onnx.defs.get_all_schemas() if not s.deprecated}
    return sorted(current & set(_history()))


@functools.cache
def _history() -> dict[tuple[str, str], list[int]]:
    table: dict[tuple[str, str], list[int]] = {}
    for schema in onnx.defs.get_all_schemas_with_history():
        if not schema.deprecated:
            table.setdefault((schema.domain, schema.name), []).append(schema.since_version)
    return table


def _default(attribute: OpSchema.Attribute) -> Any:
    proto = attribute.default_value
    if proto is None or proto.type == onnx.AttributeProto.UNDEFINED:
        return None
    value = onnx.helper.get_attribute_value(proto)
    return value.decode() if isinstance(value, bytes) else value
