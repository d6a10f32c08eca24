"""What schemas say: the names of an operator's inputs, outputs and attributes.

ONNX's own operators have ONNX's schemas, ours have their contracts.
"""

from __future__ import annotations

import difflib
import functools
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import onnx
from onnx.defs import OpSchema

from onnxgrad.contracts import DOMAIN, Contract, contracts
from onnxgrad.graph.infer import NEWEST


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

    def wrong_inputs(self, inputs: Sequence[Any]) -> str | None:
        """Say what is wrong with a node's inputs, of which None is absent; None if nothing is."""
        least, most = self.arity
        if not least <= len(inputs) <= most:
            expected = f"{least}" if least == most else f"{least} to {most}"
            return f"has {len(inputs)} inputs, expected {expected}"
        for name, value in zip(self.inputs[:least], inputs, strict=False):
            if value is None and name not in self.optional:
                return f"leaves out input {name!r}, which it must have"
        return None

    def missing_attribute(self, given: Collection[str]) -> str | None:
        """Say which attribute a node must have and lacks; None if there is none."""
        for name in self.required:
            if name not in given:
                return f"lacks the attribute {name!r}, which it must have"
        return None

    def unknown_attribute(self, given: Iterable[str]) -> str | None:
        """Say which attribute the operator does not have; None if there is none."""
        for name in given:
            if name not in self.attributes:
                names = ", ".join(self.attributes) or "none"
                near = _nearest(name, self.attributes)
                return f"has no attribute {name!r}{near}, expected {names}"
        return None

    def wrong_outputs(self, count: int) -> str | None:
        """Say that a node has more outputs than its operator; None if it has not."""
        if count <= len(self.outputs) or self.variadic & set(self.outputs):
            return None
        return (
            f"has {len(self.outputs)} outputs ({', '.join(self.outputs)}), {count} were asked for"
        )


@functools.cache
def signature(op_type: str, opset: int, domain: str = "") -> Signature | None:
    """Return the signature of an operator in an opset; None where neither ONNX nor we have it.

    >>> signature("Gemm", 18).inputs
    ('A', 'B', 'C')
    >>> signature("Gemm", 18).attributes["alpha"]
    1.0
    """
    if domain == DOMAIN and op_type in contracts():
        return _of_contract(contracts()[op_type])
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


def _of_contract(contract: Contract) -> Signature:
    must = [i for i, t in enumerate(contract.inputs) if not t.optional]
    tensors = (*contract.inputs, *contract.outputs)
    defaults = {a.name: a.default for a in contract.attributes}
    return Signature(
        op_type=contract.name,
        domain=DOMAIN,
        version=1,
        inputs=tuple(t.name for t in contract.inputs),
        outputs=tuple(t.name for t in contract.outputs),
        attributes={name: defaults.get(name) for name in contract.attribute_names},
        optional=frozenset(t.name for t in tensors if t.optional),
        types=tuple(t.type for t in contract.inputs),
        arity=(max(must, default=-1) + 1, len(contract.inputs)),
    )


@functools.cache
def domain_of(op_type: str) -> str | None:
    """Return the domain of a bare name: ONNX's (""), ours (com.microsoft), or None for neither.

    >>> domain_of("Relu"), domain_of("ReluGrad"), domain_of("Reluu")
    ('', 'com.microsoft', None)
    """
    if signature(op_type, NEWEST):
        return ""
    return DOMAIN if op_type in contracts() else None


def unknown_operator(op_type: str) -> str:
    """Return the sentence for a name that neither ONNX nor we have, with the nearest one."""
    known = {name for domain, name in known_operators() if domain == ""} | set(contracts())
    return (
        f"neither ONNX nor onnxgrad has an operator {op_type!r}{_nearest(op_type, known)}; "
        "an operator of another domain is written with domain=, "
        f'as in op("{op_type}", ..., domain="my.domain")'
    )


def _nearest(name: str, known: Iterable[str]) -> str:
    lower = {k.lower(): k for k in known}
    found = difflib.get_close_matches(name.lower(), lower, n=1, cutoff=0.65)
    return f" (did you mean {lower[found[0]]!r}?)" if found else ""


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
