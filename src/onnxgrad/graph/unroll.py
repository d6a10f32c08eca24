"""Loops that make a list, and whose trips are known: their body is written once for each trip.

PyTorch's newer exporter writes EmbeddingBag as a Loop that puts a row into a list for each bag. Where the number of
trips does not depend on the run, the list is then one of a known length, and what the body asks for is known as well.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import onnx_ir as ir

from onnxgrad.graph.bodies import bodies
from onnxgrad.graph.constants import Constants

TRIPS = 256
NODES = 1 << 14  # in all


def unroll(model: ir.Model) -> bool:
    """Write out the loops of the main graph that make lists, where their trips are known; say whether any was."""
    loops = [n for n in model.graph if n.op_type == "Loop" and not n.domain and _makes_list(n)]
    return sum(_Unrolled(model.graph, loop).write() for loop in loops) > 0


def _makes_list(loop: ir.Node) -> bool:
    states = [v for v in loop.inputs[2:] if v is not None and v.producer() is not None]
    return any(v.producer().op_type == "SequenceEmpty" for v in states)


class _Unrolled:
    """One loop, trip after trip."""

    def __init__(self, graph: ir.Graph, loop: ir.Node):
        self.graph, self.loop = graph, loop
        self.body: ir.Graph = loop.attributes["body"].value
        self.constants = Constants(())
        self.nodes: list[ir.Node] = []

    def write(self) -> bool:
        """Put the trips in the place of the loop, unless only the run knows how many there are."""
        scans = len(self.body.outputs) - 1 - len(self.loop.inputs[2:])
        if scans or any(v.is_graph_output() for v in self.loop.outputs):
            return False
        states = self._run()
        if states is None:
            return False
        self.graph.insert_before(self.loop, self.nodes)
        ir.convenience.replace_all_uses_with(list(self.loop.outputs), states)
        self.graph.remove(self.loop, safe=True)
        return True

    def _run(self) -> list[ir.Value] | None:
        """Return the states after the last trip; None where only the run knows which is the last."""
        most, go_on, *states = self.loop.inputs
        limit = TRIPS + 1 if most is None else self._number(most)
        condition = 1 if go_on is None else self._number(go_on)
        if limit is None:
            return None
        for trip in range(limit):
            if condition is None or trip >= TRIPS or len(self.nodes) > NODES:
                return None
            if not condition:
                break
            last, *states = self._trip(trip, states)
            condition = self._number(last)
        return states

    def _number(self, value: ir.Value) -> int | None:
        array = self.constants.array(value)
        return None if array is None or array.size != 1 else int(array.reshape(()))

    def _trip(self, trip: int, states: list[ir.Value]) -> list[ir.Value]:
        """Add the nodes of one trip; return the condition and the states after it."""
        body = self.body.clone(allow_outer_scope_values=True)
        given = [
            self._constant(np.array(trip), trip, "trip"),
            self._constant(np.array(True), trip, "goes"),
        ]
        inner = dict(zip(body.inputs, [*given, *states], strict=True))
        outputs = [inner.get(v, v) for v in body.outputs]
        body.outputs.clear()
        for old, new in inner.items():
            ir.convenience.replace_all_uses_with(old, new)
        nodes = list(body)
        body.remove(nodes)
        for node in _within(nodes):
            for named in (node, *node.outputs):
                named.name = f"{named.name}/trip_{trip}" if named.name else named.name
        self.nodes += nodes
        return outputs

    def _constant(self, array: np.ndarray, trip: int, what: str) -> ir.Value:
        name = f"{self.loop.outputs[0].name}/{what}_{trip}"
        value = ir.Value(name=name, const_value=ir.tensor(array, name=name))
        value.dtype, value.shape = value.const_value.dtype, ir.Shape([])
        self.graph.register_initializer(value)
        return value


def _within(nodes: Iterable[ir.Node]) -> Iterator[ir.Node]:
    """Yield nodes, and the nodes of their bodies."""
    for node in nodes:
        yield node
        for graph in bodies(node):
            yield from _within(graph)
