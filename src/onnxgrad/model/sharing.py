"""Which tensors of a file several places use, and which of these uses were one parameter once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import onnx

from onnxgrad.model import origin
from onnxgrad.model.patterns import is_identity, is_of_two_numbers, is_uniform
from onnxgrad.model.source import OriginalModel
from onnxgrad.model.traces import Traces
from onnxgrad.model.uses import LAYERS, Site, Uses, first_call, owner

FLOATS = (
    onnx.TensorProto.FLOAT, onnx.TensorProto.DOUBLE, onnx.TensorProto.FLOAT16,
    onnx.TensorProto.BFLOAT16,
)  # fmt: skip


@dataclass
class Place:
    """The sites that were one parameter before the export, and the name it had or gets.

    `sure`: the exporter left a trace that tells it from the others. `module` is where the network has
    it, for comparisons with the others. `computed`: the exporter computed it, and the file lacks from what.
    `matrices`: what the layers multiply by whose bias it is.
    """

    name: str
    module: str
    sure: bool
    sites: list[Site] = field(default_factory=list)
    computed: bool = False
    matrices: set[str] = field(default_factory=set)


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

        Equal elements are no evidence where there is only one. Two biases that are added and began at
        zero stay equal for ever, since they have the same gradient: those of one layer, or of layers
        with different matrices, which nobody ties by their biases alone.
        """
        first, *others = self.places
        single = int(np.prod(self.tensor.dims)) == 1
        if self.uniform:
            return [p for p in others if p.sure or not single or _is_slope(p)]
        alike = (origin.same_but_numbers, origin.of_one_module)
        return [
            p
            for p in others
            if p.sure and (any(f(p.module, first.module) for f in alike) or _other_layers(p, first))
        ]


def _other_layers(a: Place, b: Place) -> bool:
    """Both are biases, of layers that have nothing else in common."""
    return bool(a.matrices and b.matrices) and not a.matrices & b.matrices


def _is_slope(place: Place) -> bool:
    return all(s.node.op_type == "PRelu" for s in place.sites)


def shared_tensors(source: OriginalModel) -> Iterator[Shared]:
    """Yield the float initializers that several sites read, with the parameters they stand for."""
    graph = source.proto.graph
    uses = Uses(graph)
    traces = Traces(source)
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
        for place in places:
            place.matrices = {m for s in place.sites if (m := uses.matrix_beside(s))}
        yield Shared(tensor, places, _is_new(source.array(tensor.name), sites))


def _is_new(array: np.ndarray, sites: list[Site]) -> bool:
    """As networks begin, whatever their seed; zeros and ones may be a mask, unless a layer reads them."""
    layers = all(s.node.op_type in LAYERS and s.index for s in sites)
    return is_uniform(array) or is_identity(array) or (layers and is_of_two_numbers(array))


def _is_statistic(site: Site) -> bool:
    return site.node.op_type == "BatchNormalization" and site.index > 2


def _alone(sites: list[Site]) -> bool:
    """All are parts of what one module reads."""
    return len({owner(s.node) for s in sites}) < 2


def _beside(source: OriginalModel, uses: Uses, sites: list[Site]) -> dict[int, str]:
    """Return for the biases among the sites the matrix of their layer, where several layers share it.

    Layers with one matrix, which did not become equal by chance, have one bias.
    """
    found = {id(site): uses.matrix_beside(site) for site in sites}
    names = set(found.values()) & set(source.tensors)
    one = {n for n in names if len(uses.of(n)) > 1 and not is_uniform(source.array(n))}
    return {key: name for key, name in found.items() if name in one}


def _may_learn(tensor: onnx.TensorProto, sites: list[Site], traces: Traces) -> bool:
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
    traces: Traces,
    taken: set[str],
    beside: dict[int, str],
) -> list[Place]:
    """Group the sites of a tensor by the parameter that each of them read before the export."""
    groups: dict[tuple, Place] = {}
    of_matrix: dict[str, tuple] = {}
    of_call: dict[tuple, tuple] = {}
    for site in sites:
        key, place = _parameter(name, site, traces)
        if (call := traces.call(site)) is not None:
            key = of_call.setdefault(call, key)
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


def _parameter(name: str, site: Site, traces: Traces) -> tuple[tuple, Place]:
    """Return what tells the parameter of a site from others, and a place for it."""
    if site.path:
        first = site.path[0]
        if owner(site.node) != owner(first):
            return _of_module(name, owner(site.node), site)
        site = Site(first, 0, site.value)
    node, metadata = site.node, origin.properties(site.node.metadata_props)
    scope, role = origin.scope_of(node.name, metadata), origin.role_of(node.op_type, site.index)
    here = f"{scope}.{role}" if scope else f"{node.name or node.output[0]}.{role}"
    if site.value != name:  # the older exporter's Identity, with the parameter's own name
        module = here if origin.is_generated(site.value) else site.value
        return ("value", site.value), Place(site.value, module, True)
    if origin.learns_nothing(node.op_type, metadata) and not _is_statistic(site):
        # the exporter's own ones or zeros; the module's name is its parameter's, where it has one
        taken = any(t.startswith("p_") for t in origin.parameters_of(metadata))
        own = f"{node.name}.{role}" if taken and node.name else here
        return ("constant", node.name, site.index), Place(own, here, True)
    token = _token(site, origin.parameters_of(metadata), traces.infos)
    if token:
        own = origin.unmangled(token, scope)
        return ("parameter", token), Place(own, own, True)
    part = traces.part_of_a_parameter(name, metadata)
    if part:
        return ("parameter", part), Place(part, part, True)
    formula = traces.formula(metadata)
    if formula:
        return ("parameter", formula), Place(formula, formula, True, computed=True)
    module = here if origin.is_generated(name) else name
    if traces.merged and not metadata:
        # every merged parameter has an Identity, so this one was not
        return ("own",), Place(name, module, True)
    if scope and f"{first_call(scope)}.{role}" == name:
        return ("own",), Place(name, module, True)
    if (
        not metadata
        and name.rpartition(".")[0] == first_call(scope)
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
