"""Who reads the tensors of a file: the sites behind copies and behind nodes that only move numbers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import onnx

from onnxgrad.model import origin


@dataclass
class Site:
    """One place that reads a tensor: input `index` of `node`, by the name `value`.

    `path`: the nodes that move the tensor on its way there (Split, Transpose), where other sites share them.
    """

    node: onnx.NodeProto
    index: int
    value: str
    path: tuple[onnx.NodeProto, ...] = ()

    @property
    def read(self) -> tuple[str, int]:
        """Where the tensor itself is read: parts of it that go different ways are one use."""
        return (self.path[0].output[0], 0) if self.path else (self.node.output[0], self.index)


class Uses:
    """Who reads what in a graph; the bodies of control flow count as parts of their node."""

    def __init__(self, graph: onnx.GraphProto):
        self.sites: dict[str, list[Site]] = {}
        self.copies: dict[str, list[onnx.NodeProto]] = {}  # value -> Identity nodes that read it
        outputs = {v.name for v in graph.output}
        self.producers = {o: node for node in graph.node for o in node.output}
        for node in graph.node:
            copy = node.op_type == "Identity" and not node.domain and node.output[0] not in outputs
            if copy:
                self.copies.setdefault(node.input[0], []).append(node)
                continue
            for site in _sites(node):
                self.sites.setdefault(site.value, []).append(site)
        self.outputs = outputs

    def of(self, name: str) -> list[Site]:
        """Return every site of a tensor, Identity nodes looked through."""
        sites = list(self.sites.get(name, ()))
        for node in self.copies.get(name, ()):
            sites += self.of(node.output[0])
        return sites

    def through_moves(self, site: Site) -> list[Site]:
        """Return the sites behind nodes that move a tensor, where they tell more of modules than the site.

        An exporter that merged two parameters merges what is computed from them, too.
        """
        found = self._behind(site)
        owners = {owner(s.node) for s in found}
        several = len(owners) > 1 or not owner(site.node)
        return found if several and "" not in owners else [site]

    def _behind(self, site: Site) -> list[Site]:
        node = site.node
        if node.op_type not in _MOVES or node.domain or site.index:
            return [site]
        if any(o in self.outputs for o in node.output):
            return [site]
        path = (*site.path, node)
        inner = [s for o in node.output for s in self.sites.get(o, ())]
        found = (Site(s.node, s.index, site.value, path) for s in inner)
        return [s for each in found for s in self._behind(each)]

    def matrix_beside(self, site: Site) -> str:
        """Return what a layer multiplies by whose bias a site reads; "" where it is none."""
        node = site.node
        if node.op_type == "Add":
            other = node.input[1 - site.index] if len(node.input) == 2 else ""
            node = self.producers.get(other, node)
            index = 1 if node.op_type in ("MatMul", "Conv") else 0
        else:
            index = 1 if _BIASED.get(node.op_type) == site.index else 0
        return self.uncopied(node.input[1]) if index else ""

    def uncopied(self, value: str) -> str:
        """Return the value that Identity nodes copy."""
        while (node := self.producers.get(value)) is not None and node.op_type == "Identity":
            value = node.input[0]
        return value


_BIASED = {
    "Gemm": 2, "Conv": 2, "ConvTranspose": 2, "LSTM": 3, "GRU": 3, "RNN": 3,
    "LayerNormalization": 2, "InstanceNormalization": 2, "BatchNormalization": 2,
}  # fmt: skip
LAYERS = {"Gemm", "MatMul", "Conv", "ConvTranspose", "LSTM", "GRU", "RNN"}
_MOVES = ("Split", "Transpose", "Reshape", "Squeeze", "Unsqueeze", "Slice", "Cast", "Flatten")


def owner(node: onnx.NodeProto) -> str:
    """Return the module that a node belongs to, whichever of its calls it is."""
    return first_call(origin.scope_of(node.name, origin.properties(node.metadata_props)))


def _sites(node: onnx.NodeProto) -> Iterator[Site]:
    for index, name in enumerate(node.input):
        if name:
            yield Site(node, index, name)
    for attribute in node.attribute:
        for graph in (attribute.g, *attribute.graphs):
            own = {v.name for v in graph.input} | {o for n in graph.node for o in n.output}
            for inner in graph.node:
                yield from (s for s in _sites(inner) if s.value not in own)


def first_call(scope: str) -> str:
    """The older exporter numbers the calls of one module: `ln`, `ln_1`."""
    head, mark, number = scope.rpartition("_")
    return head if mark and number.isdigit() else scope
