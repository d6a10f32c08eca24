"""Tensors that an exporter merged because they were equal by chance get their own copies again."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable

import numpy as np
import onnx

from onnxgrad.model import origin
from onnxgrad.model.change import Change
from onnxgrad.model.patterns import is_identity
from onnxgrad.model.sharing import Place, Shared, fresh, shared_tensors
from onnxgrad.model.source import OriginalModel
from onnxgrad.model.uses import Site
from onnxgrad.notes import Note


class Untie(Change):
    """Gives every parameter that shares a tensor of equal elements a tensor of its own.

    In a new network all scales are ones and all biases zeros, and an exporter writes each such tensor
    once. Tensors of other values that are shared were one parameter, and stay one,
    unless the file says that they were copies of one layer. `tie` and
    `untie` are names or patterns that decide otherwise; "all" means every one.
    """

    def __init__(self, tie: str | Iterable[str] = (), untie: str | Iterable[str] = ()):
        self.tie, self.untie = patterns(tie), patterns(untie)
        self.notes: list[Note] = []
        self.shared: list[Shared] = []  # what stays so
        self.known: list[list[str]] = []  # the names of each shared tensor

    def rewrite(self, source: OriginalModel) -> None:
        """Separate until nothing is left: a bias tells its layers apart only once their matrices are separate."""
        found = list(shared_tensors(source))
        self.known = [shared.names for shared in found]
        check_used("tie", self.tie, self.known)
        while self._part(source, found):
            found = list(shared_tensors(source))

    def _part(self, source: OriginalModel, found: list[Shared]) -> bool:
        """Separate what was merged among the shared tensors; say whether there was any, and keep the rest."""
        before, self.shared = len(self.notes), []
        for shared in found:
            parted = shared.merged()
            if names_match(shared.names, self.untie):
                parted = every_site(shared, source)
            elif names_match(shared.names, self.tie):
                parted = []
            if parted:
                self._separate(source, shared, parted)
            shared.places = [p for p in shared.places if p not in parted]
            if len({s.read for p in shared.places for s in p.sites}) > 1:
                self.shared.append(shared)
        return len(self.notes) > before

    def _separate(self, source: OriginalModel, shared: Shared, parted: list[Place]) -> None:
        graph, name = source.proto.graph, shared.tensor.name
        data = source.raw(name)
        for place in parted:
            clones: dict[str, str] = {}
            for site in place.sites:
                redirect(graph, site, place.name, clones)
            add_copy(graph, shared.tensor, place.name, data)
            tell_origin(graph, place)
        own = [p.name for p in parted]
        drop_identities(graph, set(own))
        source.refresh()
        shown = ", ".join(repr(n) for n in own[:3]) + (" …" if len(own) > 3 else "")
        why = "as asked for" if names_match(shared.names, self.untie) else ""
        why = why or _reason(shared, parted, source.array(name))
        self.notes.append(
            Note(
                "untied",
                name,
                f"tensor {name!r} stood for {len(own) + 1} parameters and is untied ({why}): "
                f"{shown} {'has its' if len(own) == 1 else 'have their'} own copy",
                f"--tie {name} keeps it one",
            )
        )

    def describe(self) -> Iterable[Note]:
        for shared in self.shared:
            yield tied_note(shared)
        yield from self.notes


def _reason(shared: Shared, parted: list[Place], array: np.ndarray) -> str:
    """Say why what is shared was several parameters."""
    if shared.uniform:
        numbers = np.unique(array)
        if len(numbers) == 1:
            return f"all its elements are {numbers[0]:g}"
        return (
            "it is the identity"
            if is_identity(array)
            else "it holds nothing but " + " and ".join(f"{number:g}" for number in numbers)
        )
    modules = [shared.tensor.name, shared.places[0].module]
    if any(origin.of_one_module(p.module, m) for p in parted for m in modules):
        return "two parameters of one layer"
    if any(origin.same_but_numbers(p.module, shared.places[0].module) for p in parted):
        return "copies of one layer"
    return "biases of different layers"


def tied_note(shared: Shared) -> Note:
    """Say that a tensor stays one in all its places."""
    name, sites = shared.tensor.name, [s for p in shared.places for s in p.sites]
    nodes = list(dict.fromkeys(s.node.name or s.node.op_type for s in sites))
    shown = ", ".join(repr(n) for n in nodes[:3]) + (" …" if len(nodes) > 3 else "")
    return Note(
        "tied",
        name,
        f"tensor {name!r} is one parameter in {len(sites)} places and stays one: {shown}",
        f"--untie {name} gives each its own",
    )


def patterns(given: str | Iterable[str]) -> list[str]:
    """Return names and patterns as a list; a string may hold several with commas."""
    return (
        [p.strip() for p in given.split(",") if p.strip()] if isinstance(given, str) else [*given]
    )


def names_match(names: Iterable[str], wanted: list[str]) -> bool:
    """Say whether a pattern means one of the names; "all" means every one."""
    names = list(names)
    return any(p == "all" or p in names or fnmatch.filter(names, p) for p in wanted)


def check_used(what: str, wanted: list[str], known: list[list[str]]) -> None:
    """Raise ValueError for a pattern that means none of the shared tensors, each with its names."""
    for pattern in wanted:
        if pattern != "all" and not any(names_match(names, [pattern]) for names in known):
            listed = ", ".join(repr(names[0]) for names in known[:4]) or "none"
            raise ValueError(
                f"{what} names {pattern!r}, which is not a shared tensor of the model; those are {listed}"
            )


def every_site(shared: Shared, source: OriginalModel) -> list[Place]:
    """Return the places to separate where each is to be on its own, uses of one parameter included."""
    if len(shared.places) > 1:
        return shared.places[1:]
    first = shared.places[0]
    moved, first.sites = first.sites[1:], first.sites[:1]
    taken = set(source.tensors) | {o for n in source.proto.graph.node for o in n.output}
    for site in moved:
        name = fresh(shared.tensor.name, taken)
        taken.add(name)
        shared.places.append(Place(name, name, True, [site]))
    return shared.places[1:]


def add_copy(graph: onnx.GraphProto, tensor: onnx.TensorProto, name: str, data: bytes) -> None:
    """Add an initializer like `tensor`, and what the graph says of it, under another name."""
    copy = graph.initializer.add()
    copy.name, copy.data_type = name, tensor.data_type
    copy.dims.extend(tensor.dims)
    copy.raw_data = data
    for infos in (graph.value_info, graph.input):
        for info in [v for v in infos if v.name == tensor.name]:
            other = infos.add()
            other.CopyFrom(info)
            other.name = name


def tell_origin(graph: onnx.GraphProto, place: Place) -> None:
    """Note what the copy of a computed tensor was computed from: the first one's note is of the first layer."""
    infos = [v for v in graph.value_info if v.name == place.name]
    for info in infos if place.computed else ():
        del info.metadata_props[:]
        info.metadata_props.add(key=origin.FOLDED, value=str([place.name]))
    notes = [p for v in infos for p in v.metadata_props if p.key == origin.FOLDED]
    if not notes or place.computed:
        return
    calls = [origin.properties(n.metadata_props) for n in following(graph, place)]
    for entry in notes:
        entry.value = origin.renamed(entry.value, calls)


def following(graph: onnx.GraphProto, place: Place, most: int = 100) -> list[onnx.NodeProto]:
    """Return the nodes that depend on what a place reads, the nearest first."""
    found = [site.node for site in place.sites]
    seen = {o for node in found for o in node.output}
    for node in found:
        if len(found) >= most:
            break
        made = set(node.output)
        after = [n for n in graph.node if made & set(n.input) and not seen & set(n.output)]
        seen.update(o for n in after for o in n.output)
        found += after
    return found


def redirect(graph: onnx.GraphProto, site: Site, name: str, clones: dict[str, str]) -> None:
    """Let a site read the tensor `name`, by nodes of its own where it reads it behind others.

    `clones` are the values of such nodes that were made already, by the values that they stand for.
    """
    if not site.path:
        site.node.input[site.index] = name
        return
    for node in site.path:
        if node.output[0] in clones:
            continue
        copy = onnx.NodeProto()
        copy.CopyFrom(node)
        copy.name = f"{name}/{node.name}" if node.name else ""
        copy.input[0] = clones.get(node.input[0], name)
        for index, output in enumerate(node.output):
            clones[output] = copy.output[index] = f"{name}/{output}"
        place = next(i for i, n in enumerate(graph.node) if n.output == node.output)
        graph.node.insert(place + 1, copy)
    site.node.input[site.index] = clones[site.node.input[site.index]]


def drop_identities(graph: onnx.GraphProto, names: set[str]) -> None:
    """Remove the Identity nodes that made what are initializers now."""
    for node in [n for n in graph.node if n.op_type == "Identity" and n.output[0] in names]:
        graph.node.remove(node)
