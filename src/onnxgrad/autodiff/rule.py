"""The registry of gradient rules: how an operator is differentiated, or why it is not.

A rule is written in the operator's own names, as ONNX's schema spells them:

    rule("Div", broadcast=True,
         A=lambda op, B, dC:    op.Div(dC, B),
         B=lambda op, B, C, dC: op.Neg(op.Div(op.Mul(dC, C), B)))

`op` writes nodes. `B` and `C` are forward values, `dC` is the cotangent of output `C`, and the
formula returns the cotangent of the input it is named after. Names that come after a `*` are
attributes (with the schema's default when a node does not set them), or one of

    attrs   every attribute that the node sets, ready for `op.SomeGrad(..., **attrs)`
    need    the inputs whose gradient is wanted: `"W" in need`, or `outputs=need`
    node    the forward node itself
    forward an optional output that the node may leave out, when asked: `forward("mask")`
    captured  for operators with bodies: the outer values whose gradient is wanted; the formula
            returns a dict that may have them as keys
    inside  for operators with bodies: `inside(body, cotangents, wrt)` differentiates one
    active  for operators with bodies: `active(value)` says whether a value carries a gradient

Every name is checked against the schemas when the rule is written, so a misspelt one fails at
import. An absent optional input and a zero cotangent are None. A name that stands for many values
(Concat's `inputs`) is a list, and so is its gradient. An input that older versions have as an
attribute (axes of ReduceMean) arrives as a constant, and an optional output that the node leaves
out (the Indices of MaxPool) is added to it when a formula names it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from onnxgrad.graph import schemas
from onnxgrad.graph.load import FLOOR
from onnxgrad.graph.schemas import Signature

_SPECIAL = ("attrs", "need", "node", "forward", "captured", "inside", "active")


class NoGradient(Exception):
    """Raised by a formula for a node that it cannot differentiate: why, and what to do instead."""

    def __init__(self, because: str, instead: str):
        super().__init__(because)
        self.because, self.instead = because, instead


class Need(tuple):
    """The names of the inputs whose gradient is wanted; `flags` marks them among all of `wrt`."""

    flags: tuple[bool, ...]

    @classmethod
    def of(cls, wrt: Iterable[str], wanted: Iterable[str]) -> Need:
        """Keep the names of `wrt` that are wanted."""
        wrt, wanted = tuple(wrt), set(wanted)
        need = cls(name for name in wrt if name in wanted)
        need.flags = tuple(name in wanted for name in wrt)
        return need


@dataclass(frozen=True)
class Formula:
    """One function that gives the gradients of the inputs `wrt`."""

    function: Callable[..., Any]
    wrt: tuple[str, ...]
    values: tuple[str, ...]
    keywords: dict[str, Any]


@dataclass(frozen=True)
class Rule:
    """How an operator is differentiated, from schema version `since` on."""

    op_type: str
    domain: str
    since: int
    broadcast: bool
    formulas: tuple[Formula, ...]
    stop: frozenset[str]
    names: Signature | None

    @property
    def wrt(self) -> frozenset[str]:
        """The inputs that get a gradient."""
        return frozenset(name for f in self.formulas for name in f.wrt)


@dataclass(frozen=True)
class Refusal:
    """An operator that is not differentiated: its gradient is zero, or there is none to give."""

    zero: bool
    because: str
    instead: str = ""


STANDARD: dict[tuple[str, str], list[Rule]] = {}
FUSED: dict[tuple[str, str], list[Rule]] = {}
REFUSED: dict[tuple[str, str], Refusal] = {}


def rule(
    *op_types: str,
    since: int = 1,
    domain: str = "",
    broadcast: bool = False,
    wrt: str | None = None,
    stop: str = "",
    inputs: str | None = None,
    outputs: str | None = None,
    **by_input: Callable[..., Any],
) -> Any:
    """Say how operators are differentiated, with ONNX's standard operators.

    One formula per input, each a keyword named after it:

    >>> rule("Neg", X=lambda op, dY: op.Neg(dY))

    or one function for several inputs, as a decorator. It returns a tuple in the order of `wrt`,
    a dict by name, or the one value when `wrt` has one name:

    >>> @rule("Gemm", wrt="A B C")
    ... def gemm(op, A, B, C, dY, *, attrs, need): ...                     # doctest: +SKIP

    Options: `since`, the oldest version the rule is right for (default: any); `broadcast=True`,
    inputs were broadcast, so gradients are summed back to their shapes; `stop="roi scales"`,
    float inputs that get no gradient; `domain`, and for operators that ONNX does not know the
    names `inputs="X W"` and `outputs="Y"`. A later rule takes the place of an earlier one, and a
    model that has an operator with a rule of yours is differentiated node by node, without patterns.
    """
    return _register(
        STANDARD, op_types, by_input, wrt,
        since=since, domain=domain, broadcast=broadcast, stop=stop, inputs=inputs, outputs=outputs,
    )  # fmt: skip


def fused(
    *op_types: str,
    since: int = 1,
    domain: str = "",
    broadcast: bool = False,
    wrt: str | None = None,
    stop: str = "",
    inputs: str | None = None,
    outputs: str | None = None,
    **by_input: Callable[..., Any],
) -> Any:
    """Say how operators are differentiated with onnxgrad's own operators; else as `rule`.

    Used with `ops="fused"`, where all floats of the node are float or double. A formula returns
    NotImplemented for a node that its operator cannot do; the standard rule then takes it.

    >>> fused("Relu", X=lambda op, X, dY: op.ReluGrad(dY, X))
    """
    return _register(
        FUSED, op_types, by_input, wrt,
        since=since, domain=domain, broadcast=broadcast, stop=stop, inputs=inputs, outputs=outputs,
    )  # fmt: skip


def no_gradient(*op_types: str, because: str, domain: str = "") -> None:
    """Say that the gradient of operators is known to be zero, and why."""
    _refuse(op_types, domain, Refusal(True, because))


def unsupported(*op_types: str, because: str, instead: str, domain: str = "") -> None:
    """Say that operators are known to have no gradient to give, why, and what to do."""
    _refuse(op_types, domain, Refusal(False, because, instead))


def find(table: dict[tuple[str, str], list[Rule]], op_type: str, domain: str, version: int):
    """Return the rule with the greatest `since` that is not above `version`, or None."""
    rules = table.get((domain, op_type), ())
    return max((r for r in rules if r.since <= version), key=lambda r: r.since, default=None)


def is_a_users(op_type: str, domain: str) -> bool:
    """Whether a rule from outside this package says how the operator is differentiated."""
    rules = [*STANDARD.get((domain, op_type), ()), *FUSED.get((domain, op_type), ())]
    functions = [f.function for r in rules for f in r.formulas]
    return any(not str(f.__module__).startswith("onnxgrad.") for f in functions)


def _refuse(op_types: Iterable[str], domain: str, refusal: Refusal) -> None:
    for op_type in op_types:
        if domain == "" and not schemas.versions(op_type):
            raise ValueError(f"ONNX has no operator {op_type!r}")
        REFUSED[domain, op_type] = refusal


def _register(
    table: dict[tuple[str, str], list[Rule]],
    op_types: tuple[str, ...],
    by_input: dict[str, Callable[..., Any]],
    wrt: str | None,
    **options: Any,
) -> Any:
    def add(formulas: list[tuple[tuple[str, ...], Callable[..., Any]]]) -> None:
        for op_type in op_types:
            new = _rule_of(op_type, formulas, **options)
            rules = table.setdefault((new.domain, op_type), [])
            rules[:] = [r for r in rules if r.since != new.since] + [new]

    if wrt is None:
        return add([((name,), function) for name, function in by_input.items()])

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        add([(tuple(wrt.split()), function)])
        return function

    return decorate


def _rule_of(op_type, formulas, *, since, domain, broadcast, stop, inputs, outputs) -> Rule:
    signatures = _signatures(op_type, domain, since, inputs, outputs)
    parts = tuple(_formula(op_type, signatures, names, f) for names, f in formulas)
    for name in stop.split():
        _expect_input(op_type, signatures[-1], name)
    own = signatures[-1] if inputs is not None else None
    return Rule(op_type, domain, since, broadcast, parts, frozenset(stop.split()), own)


def _signatures(op_type, domain, since, inputs, outputs) -> list[Signature]:
    """Every version of the operator that the rule is for, oldest first."""
    if inputs is not None:

        def names(text):
            return tuple(n.rstrip("*") for n in text.split())

        both = f"{inputs} {outputs or 'Y'}".split()
        variadic = frozenset(n.rstrip("*") for n in both if n.endswith("*"))
        optional = frozenset(names(inputs)) | frozenset(names(outputs or "Y")[1:])
        return [
            Signature(
                op_type, domain, 1, names(inputs), names(outputs or "Y"), {}, optional, variadic
            )
        ]
    history = schemas.versions(op_type, domain)
    if not history:
        known = (
            "ONNX has no operator" if not domain else f"ONNX has no schema of domain {domain!r} for"
        )
        raise ValueError(f"{known} {op_type!r}; give its inputs='...' and outputs='...'")
    floor = max((v for v in history if v <= FLOOR), default=history[0])
    current = [v for v in history if v >= floor]
    chosen = [v for v in current if v >= since] or current[-1:]
    return [schemas.signature(op_type, v, domain) for v in chosen]


def _formula(op_type, signatures: list[Signature], wrt: tuple[str, ...], function) -> Formula:
    """Check every name of a formula against the operator's schemas."""
    newest = signatures[-1]
    for name in wrt:
        _expect_input(op_type, newest, name)
    parameters = list(inspect.signature(function).parameters.values())
    values = tuple(p.name for p in parameters[1:] if p.kind is p.POSITIONAL_OR_KEYWORD)
    keywords = {p.name: p.default for p in parameters if p.kind is p.KEYWORD_ONLY}
    cotangents = {f"d{name}" for name in newest.outputs}
    for name in values:
        if name not in {*newest.inputs, *newest.outputs, *cotangents}:
            raise ValueError(
                f"the rule for {op_type} names {name!r}, expected one of its inputs "
                f"{_list(newest.inputs)}, its outputs {_list(newest.outputs)}, "
                f"or a cotangent {_list(f'd{n}' for n in newest.outputs)}"
            )
        for older in signatures[:-1]:
            if name in cotangents or name in newest.optional:
                continue
            if name not in {*older.inputs, *older.outputs, *older.attributes}:
                raise ValueError(
                    f"the rule for {op_type} names {name!r}, which version {older.version} of the "
                    f"operator does not have; give since={newest.version} or another name"
                )
    if not cotangents & set(values):
        raise ValueError(f"the rule for {op_type} uses none of {_list(cotangents)}")
    for name in keywords:
        known = name in _SPECIAL or name in newest.attributes or not newest.attributes
        if not known and not any(name in s.attributes for s in signatures):
            raise ValueError(
                f"the rule for {op_type} names the attribute {name!r}, expected one of "
                f"{_list(newest.attributes)}, or {_list(_SPECIAL)}"
            )
    return Formula(function, wrt, values, keywords)


def _expect_input(op_type: str, sig: Signature, name: str) -> None:
    if name not in sig.inputs:
        raise ValueError(
            f"the rule for {op_type} gives a gradient of {name!r}, "
            f"expected one of its inputs {_list(sig.inputs)}"
        )


def _list(names: Iterable[str]) -> str:
    return ", ".join(names) or "(none)"
