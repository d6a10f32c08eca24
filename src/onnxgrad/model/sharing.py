"""Which tensors of a file several places use, and which of these uses were one parameter once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import onnx

from onnxgrad.model import origin
from onnxgrad.model.patterns import is_identity, is_round, is_uniform
from onnxgrad.model.source import OriginalModel

FLOATS = (
    onnx.TensorProto.FLOAT, onnx.TensorProto.DOUBLE, onnx.TensorProto.FLOAT16,
    onnx.TensorProto.BFLOAT16,
)  # fmt: skip


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
    uniform: bool  # all elements are equal, or those of the diagonal: as networks begin

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

    def through_moves(self, site: Site) -> list[Site]:
        """Return the sites behind nodes that move a tensor, where they tell more of modules than the site.

        An exporter that merged two parameters merges what is computed from them, too.
        """
        found = self._behind(site)
        owners = {_owner(s.node) for s in found}
        several = len(owners) > 1 or not _owner(site.node)
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


_RECURRENT = ("lstm", "gru", "rnn_tanh", "rnn_relu")
_BIASED = {"Gemm": 2, "Conv": 2, "ConvTranspose": 2, "LSTM": 3, "GRU": 3, "RNN": 3}
_MOVES = ("Split", "Transpose", "Reshape", "Squeeze", "Unsqueeze", "Slice", "Cast", "Flatten")


def _owner(node: onnx.NodeProto) -> str:
    """Return the module that a node belongs to, whichever of its calls it is."""
    return _first_call(origin.scope_of(node.name, origin.properties(node.metadata_props)))


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
        sites = [s for site in sites for s in uses.through_moves(site)]
        if (len({s.read for s in sites}) < 2 and _alone(sites)) or tensor.name in uses.outputs:
            continue
        if not _may_learn(tensor, sites, traces):
            continue
        beside = _beside(source, uses, sites)
        places = _places(tensor.name, sites, traces, taken, beside)
        array = source.array(tensor.name)
        yield Shared(tensor, places, is_uniform(array) or is_identity(array))


def _is_statistic(site: Site) -> bool:
    return site.node.op_type == "BatchNormalization" and site.index > 2


def _alone(sites: list[Site]) -> bool:
    """All are parts of what one module reads."""
    return len({_owner(s.node) for s in sites}) < 2


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
        target, values = origin.call_of(metadata)
        if target in _RECURRENT:  # its second argument is the first state
            return ""
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
    if metadata.get(origin.KIND) == "PARAMETER" or any(map(_is_statistic, sites)):
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
            named = place.sure and not origin.is_generated(site.value)
            key = key if named else known
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
    if site.path:
        first = site.path[0]
        if _owner(site.node) != _owner(first):
            return _of_module(name, _owner(site.node), site)
        site = Site(first, 0, site.value)
    node, metadata = site.node, origin.properties(site.node.metadata_props)
    scope, role = origin.scope_of(node.name, metadata), origin.role_of(node.op_type, site.index)
    here = f"{scope}.{role}" if scope else f"{node.name or node.output[0]}.{role}"
    if site.value != name:  # the older exporter's Identity, with the parameter's own name
        module = here if origin.is_generated(site.value) else site.value
        return ("value", site.value), Place(site.value, module, True)
    if origin.learns_nothing(metadata) and not _is_statistic(
        site
    ):  # the exporter's own ones or zeros
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


def _of_module(name: str, owner: str, site: Site) -> tuple[tuple, Place]:
    """The same for a module that reads a tensor behind nodes which the exporter notes as another's, or as nobody's."""
    leaf = name.rpartition(".")[2]
    role = origin.role_of(site.node.op_type, site.index)
    own = f"{owner}.{role if origin.is_generated(name) else leaf}"
    return ("parameter", origin.mangled(own)), Place(own, own, True)


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
    fitting = fitting or [t for t in left if f"_{role}_" in t]  # bias_hh_l0
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
