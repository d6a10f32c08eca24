"""Loop and Scan seen as one thing: a body that is run once per step, with states that it hands on.

A step reads states, and slices of outer sequences (Scan); it gives new states, and rows that are
stacked into outer results. Loop has no slices, and stacks along the first axis.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import onnx_ir as ir

from onnxgrad.graph import infer


@dataclass(frozen=True)
class State:
    """`initial` enters the first step as `before`; a step turns `before` into `after`."""

    initial: ir.Value
    before: ir.Value
    after: ir.Value
    final: ir.Value


@dataclass(frozen=True)
class Row:
    """`inner` is what one step reads or writes of `outer`, along `axis`; `backwards` from the end."""

    outer: ir.Value
    inner: ir.Value
    axis: int = 0
    backwards: bool = False


@dataclass(frozen=True)
class Repeat:
    """A Loop or a Scan."""

    node: ir.Node
    body: ir.Graph
    states: list[State]
    slices: list[Row]
    stacked: list[Row]

    def inner(self) -> set[ir.Value]:
        """Return the values that exist once per step."""
        return {*self.body.inputs, *(v for n in self.body for v in n.outputs)}


def is_repeat(node: ir.Node) -> bool:
    """Say whether a node runs its body a number of times."""
    return node.op_type in ("Loop", "Scan") and not node.domain


def repeat_of(node: ir.Node) -> Repeat:
    """Read a Loop or a Scan."""
    return _loop(node) if node.op_type == "Loop" else _scan(node)


def repeats(graph: ir.Graph) -> Iterator[ir.Node]:
    """Every Loop and Scan of a graph and of the bodies in it, inner ones first."""
    for node in graph:
        for attribute in node.attributes.values():
            if attribute.type == ir.AttributeType.GRAPH:
                yield from repeats(attribute.value)
        if is_repeat(node):
            yield node


def _loop(node: ir.Node) -> Repeat:
    """Body: (number, condition, states...) -> (condition, states..., rows...)."""
    body = node.attributes["body"].value
    initial = list(node.inputs[2:])
    count = len(initial)
    states = zip(initial, body.inputs[2:], body.outputs[1:], node.outputs, strict=False)
    rows = zip(node.outputs[count:], body.outputs[1 + count :], strict=True)
    return Repeat(node, body, [State(*s) for s in states], [], [Row(*r) for r in rows])


def _scan(node: ir.Node) -> Repeat:
    """Body: (states..., slices...) -> (states..., rows...)."""
    body = node.attributes["body"].value
    slices = node.attributes["num_scan_inputs"].value
    count = len(node.inputs) - slices
    states = zip(node.inputs, body.inputs, body.outputs, node.outputs, strict=False)
    read = zip(
        node.inputs[count:], body.inputs[count:], *_layout(node, "input", slices), strict=True
    )
    rows = len(node.outputs) - count
    written = zip(
        node.outputs[count:], body.outputs[count:], *_layout(node, "output", rows), strict=True
    )
    return Repeat(
        node,
        body,
        [State(*s) for s, _ in zip(states, range(count), strict=False)],
        [Row(*r) for r in read],
        [Row(*r) for r in written],
    )


def _layout(node: ir.Node, side: str, count: int) -> tuple[list[int], list[bool]]:
    axes, directions = (
        list(node.attributes[name].value) if name in node.attributes else [0] * count
        for name in (f"scan_{side}_axes", f"scan_{side}_directions")
    )
    return axes, [bool(d) for d in directions]


def infer_bodies(model: ir.Model, infer_model: Callable[[ir.Model], None]) -> None:
    """Find the shapes that the states of every Loop and Scan keep, by `infer_model`.

    ONNX tells a body nothing of its states, since a step may change their shapes. What stays is
    found by assuming that all stays, and dropping what turns out to change.
    """
    nodes = list(repeats(model.graph))[::-1]  # outer ones first: inner ones read their states
    told: set[ir.Value] = set()
    for _ in range(4 * len(nodes) + 4 if nodes else 0):
        for node in nodes:
            _tell_all(repeat_of(node), told)
        infer_model(model)
        found = [repeat_of(node) for node in reversed(nodes)]
        news = [_tell_results(r, told) for r in found]
        if not any(news):
            news = [_forget_changed(r) for r in found]
        if not any(news):
            return


def _tell_all(repeat: Repeat, told: set[ir.Value]) -> None:
    for state in repeat.states:
        _tell(state.before, state.initial, state.initial.shape, told)
    for row in repeat.slices:
        shape = row.outer.shape
        if shape is not None:
            axis = row.axis % len(shape)
            shape = ir.Shape([d for i, d in enumerate(shape) if i != axis])
        _tell(row.inner, row.outer, shape, told)


def _tell(value: ir.Value, like: ir.Value, shape: ir.Shape | None, told: set[ir.Value]) -> None:
    if value.dtype is None:
        value.type = like.type
    if shape is not None and value not in told:
        told.add(value)
        value.shape = ir.Shape([*shape])


def _dims(value: ir.Value) -> infer.Dims | None:
    """The shape, without the names that inference gives to what it does not know."""
    shape = infer.dims(value)
    made_up = (isinstance(d, str) and d.startswith("unk__") for d in shape or ())
    return shape and tuple(None if m else d for d, m in zip(shape, made_up, strict=True))


def _forget_changed(repeat: Repeat) -> bool:
    """Forget what was assumed of a state where a step gives it another shape; say if any was."""
    changed = False
    for state in repeat.states:
        before, after = _dims(state.before), _dims(state.after)
        if before is None:
            continue
        kept = None
        if after is not None and len(after) == len(before):
            kept = tuple(b if b == a else None for b, a in zip(before, after, strict=True))
        if kept != before:
            state.before.shape = None if kept is None else ir.Shape(kept)
            changed = True
    if changed:
        for value in (v for n in repeat.body for v in n.outputs):
            value.shape = None
    return changed


def _tell_results(repeat: Repeat, told: set[ir.Value]) -> bool:
    """What a state keeps in every step its last value has, too; say whether that was news."""
    changed = False
    for state in repeat.states:
        known, news = _dims(state.final), _dims(state.before)
        if (known is None or state.final in told) and news != known:
            state.final.shape = None if news is None else ir.Shape(news)
            told.add(state.final)
            changed = True
    return changed
