"""What an exporter left in a file that tells the parameters apart which it merged."""

from __future__ import annotations

from onnxgrad.model import origin
from onnxgrad.model.patterns import is_round
from onnxgrad.model.source import OriginalModel
from onnxgrad.model.uses import Site, first_call

_RECURRENT = ("lstm", "gru", "rnn_tanh", "rnn_relu")


class Traces:
    """What an exporter left in a file that tells parameters apart."""

    def __init__(self, source: OriginalModel):
        graph = source.proto.graph
        self.infos = {v.name: origin.properties(v.metadata_props) for v in graph.value_info}
        # values that a run makes or is given
        self.made = {o for n in graph.node for o in n.output} | {v.name for v in graph.input}
        copied = (n.input[0] for n in graph.node if n.op_type == "Identity")
        self.merged = any(name in source.tensors for name in copied)  # by the older exporter
        self.source = source
        self.scopes = {origin.scope_of(n.name, {}) for n in graph.node}

    def call(self, site: Site) -> tuple | None:
        """Return what all calls of a module have in common of a site; None where nothing tells.

        The older exporter computes a parameter in another shape anew for every call, and then merges the results.
        """
        scope, _, leaf = site.node.name.rpartition("/")
        scope = origin.scope_of(site.node.name, {}) if scope else ""
        if not scope or not origin.is_generated(site.value) or site.node.metadata_props:
            return None
        first = first_call(scope)
        return (first if first in self.scopes else scope), leaf, site.index

    def formula(self, metadata: dict[str, str]) -> str:
        """Return the result of a formula that a call reads where the file has a tensor: it was merged with that."""
        values = origin.arguments_of(metadata)
        left = [v for v in values if v not in self.made and v not in self.source.tensors]
        return left[0] if len(left) == 1 and origin.is_formula(left[0]) else ""

    def part_of_a_parameter(self, name: str, metadata: dict[str, str]) -> str:
        """Return which part of a parameter a call reads where its tensor `name` stands: `select_1` for p[1].

        Parts are parameters of their own. One number is no evidence, unless it is one that
        people begin with: elements that were trained are equal where they are one.
        """
        if not origin.folded_parameters(self.infos.get(name, {})):
            return ""
        target, values = origin.call_of(metadata)
        if target in _RECURRENT:  # its second argument is the first state
            return ""
        left = [v for v in values[:2] if v not in self.made]
        if len(left) != 1 or not left[0]:
            return ""
        array = self.source.array(name)
        return left[0] if array.size > 1 or is_round(float(array.reshape(-1)[0])) else ""
