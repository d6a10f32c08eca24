"""Which tensors of a file several places use, and which of these uses were one parameter once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import onnx

from onnxgrad.model import origin
from onnxgrad.model.patterns import is_round, is_uniform
from onnxgrad.model.source import OriginalModel

FLOATS = (
    onnx.TensorProto.FLOAT, onnx.TensorProto.DOUBLE, onnx.TensorProto.FLOAT16,
    onnx.TensorProto.BFLOAT16,
)  # fmt: skip


@dataclass
class Site:
    """One place that reads a tensor: input `index` of `node`, by the name `value`."""

    node: onnx.NodeProto
    index: int
    value: str


@dataclass
class Place:
    """The sites that were one parameter before the export, and the name it had or gets.

    `sure`: the exporter left a trace that tells it from the others. `module` is where the network has
    it, for comparisons with the others.
    """

    name: str
    module: str
    sure: bool
    sites: list[Site] = field(default_factory=list)


@dataclass
class Shared:
    """A tensor of the file that several parameters, or several uses of one, have become."""

    tensor: onnx.TensorProto
    places: list[Place]  # the first keeps the tensor
    uniform: bool  # all elements are equal

    @property
    def names(self) -> list[str]:
        return [self.tensor.name, *(p.name for p in self.places)]

    def merged(self) -> list[Place]:
        """Return the places that were parameters of their own: equal by chance, or as copies of a layer.

        Equal elements are no evidence where there is only one. Two biases of one layer that began at
        zero stay equal for ever, since they have the same gradient.
        """
        first, *others = self.places
        single = int(np.prod(self.tensor.dims)) == 1
        if self.uniform:
            return [p for p in others if p.sure or not single or _is_slope(p)]
        alike = (origin.same_but_numbers, origin.of_one_module)
        return [p for p in others if p.sure and any(f(p.module, first.module) for f in alike)]


def _is_slope(place: Place) -> bool:
    return all(s.node.op_type == "PRelu" for s in place.sites)


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

    def matrix_beside(self, site: Site) -> str:
        """Return what a layer multiplies by whose bias a site reads; "" where it is none."""
        node = site.node
        if node.op_type == "Add":
            other = node.input[1 - site.index] if len(node.input) == 2 else ""
            node = self.producers.get(other, node)
            index = 1 if node.op_type in ("MatMul", "Conv") else 0
        else:
            index = 1 if site.index == 2 and node.op_type in _BIASED else 0
        return node.input[1] if index else ""


_BIASED = ("Gemm", "Conv", "ConvTranspose")


def _sites(node: onnx.NodeProto) -> Iterator[Site]:
    for index, name in enumerate(node.input):
        if name:
            yield Site(node, index, name)
    for attribute in node.attribute:
        for graph in (attribute.g, *attribute.graphs):
            own = {v.name for v in graph.input} | {o for n in graph.node for o in n.output}
            for inner in graph.node:
                yield from (s for s in _sites(inner) if s.value not in own)


def shared_tensors(source: OriginalModel) -> Iterator[Shared]:
    """Yield the float initializers that several sites read, with the parameters they stand for."""
    graph = source.proto.graph
    uses = Uses(graph)
    traces = _Traces(source)
    taken = {t.name for t in graph.initializer} | traces.made
    for tensor in graph.initializer:
        sites = uses.of(tensor.name) if tensor.data_type in FLOATS else []
        if len(sites) < 2 or tensor.name in uses.outputs:
            continue
        if not _may_learn(tensor, sites, traces):
            continue
        beside = _beside(source, uses, sites)
        places = _places(tensor.name, sites, traces, taken, beside)
        yield Shared(tensor, places, is_uniform(source.array(tensor.name)))


class _Traces:
    """What an exporter left in a file that tells parameters apart."""

    def __init__(self, source: OriginalModel):
        graph = source.proto.graph
        self.infos = {v.name: origin.properties(v.metadata_props) for v in graph.value_info}
        # values that a run makes or is given
        self.made = {o for n in graph.node for o in n.output} | {v.name for v in graph.input}
        copied = (n.input[0] for n in graph.node if n.op_type == "Identity")
        self.merged = any(name in source.tensors for name in copied)  # by the older exporter
        self.source = source

    def part_of_a_parameter(self, name: str, metadata: dict[str, str]) -> str:
        """Return which part of a parameter a call reads where its tensor `name` stands: `select_1` for p[1].

        Parts are parameters of their own. One number is no evidence, unless it is one that
        people begin with: elements that were trained are equal where they are one.
        """
        if not origin.folded_parameters(self.infos.get(name, {})):
            return ""
        _, values = origin.call_of(metadata)
        left = [v for v in values[:2] if v not in self.made]
        if len(left) != 1 or not left[0]:
            return ""
        array = self.source.array(name)
        return left[0] if array.size > 1 or is_round(float(array.reshape(-1)[0])) else ""


def _beside(source: OriginalModel, uses: Uses, sites: list[Site]) -> dict[int, str]:
    """Return for the biases among the sites the matrix of their layer, where several layers share it.

    Layers with one matrix, which did not become equal by chance, have one bias.
    """
    found = {id(site): uses.matrix_beside(site) for site in sites}
    names = set(found.values()) & set(source.tensors)
    one = {n for n in names if len(uses.of(n)) > 1 and not is_uniform(source.array(n))}
    return {key: name for key, name in found.items() if name in one}


def _may_learn(tensor: onnx.TensorProto, sites: list[Site], traces: _Traces) -> bool:
    """A single number is a setting, unless it has a parameter's name, is a layer's, or a factor of 0."""
    metadata = traces.infos.get(tensor.name, {})
    if metadata.get(origin.KIND) == "PARAMETER":
        return True
    if origin.is_computed(metadata, traces.made):
        return False
    if int(np.prod(tensor.dims)) != 1:
        return True
    if any(s.node.op_type == "PRelu" for s in sites) or origin.folded_parameters(metadata):
        return True
    # By the older exporter, and not one of its Constants.
    copied = any(s.value != tensor.name for s in sites)
    factor = copied and all(s.node.op_type == "Mul" for s in sites)
    if factor and not traces.source.array(tensor.name).any():
        return True
    return (len(tensor.dims) > 0 or copied) and not origin.is_generated(tensor.name)


def _places(
    name: str,
    sites: list[Site],
    traces: _Traces,
    taken: set[str],
    beside: dict[int, str],
) -> list[Place]:
    """Group the sites of a tensor by the parameter that each of them read before the export."""
    groups: dict[tuple, Place] = {}
    of_matrix: dict[str, tuple] = {}
    for site in sites:
        key, place = _parameter(name, site, traces)
        if id(site) in beside:
            known = of_matrix.setdefault(beside[id(site)], key)
            key = key if place.sure else known
        groups.setdefault(key, place).sites.append(site)
    found = list(groups.values())
    direct = [p for p in found if p.sites[0].value == name]
    keeper = next((p for p in found if p.name == name), (direct or found)[0])
    keeper.name = name
    found.sort(key=lambda p: p is not keeper)
    for place in found[1:]:
        if place.sites[0].value == name:  # not a name of the file
            place.name = fresh(place.name, taken)
        taken.add(place.name)
    return found


def _parameter(name: str, site: Site, traces: _Traces) -> tuple[tuple, Place]:
    """Return what tells the parameter of a site from others, and a place for it."""
    node, metadata = site.node, origin.properties(site.node.metadata_props)
    scope, role = origin.scope_of(node.name, metadata), origin.role_of(node.op_type, site.index)
    here = f"{scope}.{role}" if scope else f"{node.name or node.output[0]}.{role}"
    if site.value != name:  # the older exporter's Identity, with the parameter's own name
        module = here if origin.is_generated(site.value) else site.value
        return ("value", site.value), Place(site.value, module, True)
    statistic = node.op_type == "BatchNormalization" and site.index > 2
    if origin.learns_nothing(metadata) and not statistic:  # the exporter's own ones or zeros
        return ("constant", node.name, site.index), Place(here, here, True)
    token = _token(site, origin.parameters_of(metadata), traces.infos)
    if token:
        own = origin.unmangled(token, scope)
        return ("parameter", token), Place(own, own, True)
    part = traces.part_of_a_parameter(name, metadata)
    if part:
        return ("parameter", part), Place(part, part, True)
    module = here if origin.is_generated(name) else name
    if traces.merged and not metadata:
        # every merged parameter has an Identity, so this one was not
        return ("own",), Place(name, module, True)
    if scope and f"{_first_call(scope)}.{role}" == name:
        return ("own",), Place(name, module, True)
    if (
        not metadata
        and name.rpartition(".")[0] == _first_call(scope)
        and not origin.is_generated(name)
    ):
        # the module that has the parameter, in whatever it does with it
        return ("module", scope, role), Place(here, here, False)
    return ("node", node.name or node.output[0], site.index), Place(here, here, False)


def _first_call(scope: str) -> str:
    """The older exporter numbers the calls of one module: `ln`, `ln_1`."""
    head, mark, number = scope.rpartition("_")
    return head if mark and number.isdigit() else scope


def _token(site: Site, tokens: list[str], infos: dict) -> str:
    """Return which of the parameters in the call that became a node its input `index` was."""
    if not tokens:
        return ""
    elsewhere = {
        infos.get(v, {}).get(origin.ORIGINAL)
        for i, v in enumerate(site.node.input)
        if i != site.index and v != site.value
    }
    left = [t for t in tokens if t not in elsewhere]
    role = origin.role_of(site.node.op_type, site.index)
    fitting = [t for t in left if t.endswith(f"_{role}")]
    if len(fitting) == 1 or len(left) == 1:
        return (fitting if len(fitting) == 1 else left)[0]
    # In the order of the call: the parameters among its arguments are those of the node.
    mine = [i for i, v in enumerate(site.node.input) if v == site.value]
    return left[mine.index(site.index)] if len(left) == len(mine) else ""


def fresh(name: str, taken: set[str]) -> str:
    """Return `name`, or the first `name_2`, `name_3` … that the file does not have."""
    found, number = name, 2
    while found in taken:
        found, number = f"{name}_{number}", number + 1
    return found
