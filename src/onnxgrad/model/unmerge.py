"""Calls that an exporter merged because they did the same at the time: each module gets its own again."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

import onnx

from onnxgrad.model import origin
from onnxgrad.model.change import Change
from onnxgrad.model.patterns import is_uniform
from onnxgrad.model.sharing import FLOATS
from onnxgrad.model.source import OriginalModel


@dataclass(frozen=True)
class Twin:
    """A call that the file lacks, and how its nodes follow from those of the call it was merged with.

    name: begins the names of what is copied. has: whether a node belongs to what was merged. note: what is
    noted beside such a node, for its copy.
    """

    name: str
    has: Callable[[onnx.NodeProto], bool]
    note: Callable[[str], str]


class Unmerge(Change):
    """Gives a module the nodes back that an exporter found in an equal one before it.

    `nn.TransformerDecoder` copies its layer, and every copy reads the same memory: while the copies are equal, their
    keys and values are, too, and PyTorch's newer exporter computes them once. So it does with two layers of zeros that
    read the same. It notes beside every node the call that it comes from; where that names values which the file
    lacks, and those in their place are another call's of the same kind, they were merged. `Untie` then finds the
    parameters of each.
    """

    def rewrite(self, source: OriginalModel) -> None:
        graph = source.proto.graph
        if not any(p.key == origin.SCOPES for n in graph.node for p in n.metadata_props):
            return
        calls = _Calls(source)
        for node in list(graph.node):
            for index, value in enumerate(node.input):
                twin = calls.merged(node, index)
                if twin is not None:
                    node.input[index] = calls.copied(value, twin)


class _Calls:
    """The nodes of a file by what they make, and the copies that were made of them."""

    def __init__(self, source: OriginalModel):
        self.source, self.graph = source, source.proto.graph
        graph = self.graph
        self.producers = {o: node for node in graph.node for o in node.output if o}
        self.weights = {t.name for t in graph.initializer if t.data_type in FLOATS}
        self.known = {*self.producers, *(v.name for v in graph.input)}
        self.copies: dict[tuple[str, str], str] = {}
        infos = {v.name: origin.properties(v.metadata_props) for v in graph.value_info}
        # the parameters that the file tells of, by the tensors that hold them or were computed from them
        self.parameters = {w: [w, *origin.folded_from(infos.get(w, {}))] for w in self.weights}
        self.told = {name for names in self.parameters.values() for name in names}

    def merged(self, node: onnx.NodeProto, index: int) -> Twin | None:
        """Return the call of which an input of a node was a result, where the file has another's in its place."""
        value = node.input[index]
        producer = self.producers.get(value)
        if producer is None:
            return None
        mine, other = _metadata(node), _metadata(producer)
        if origin.CALL not in mine or origin.CALL not in other:
            return None
        target, same = origin.call_of(mine)[0], origin.call_of(other)[0]
        lacking = [v for v in _meant(node, index, mine) if v not in self.known]
        # a step of a call, which nothing but the call reads
        step = origin.is_generated(value) and target == same
        step = step and origin.result_of(mine) != origin.result_of(other)
        if not (step or lacking):
            return None
        pair = two_of_a_list(_scope(producer), _scope(node))
        if pair is not None:
            return None if self._has_own_weights(producer, *pair) else _layer(*pair)
        if lacking and not step and self._is_new(value, producer):
            return _call(origin.result_of(other), lacking[0])
        return None

    def copied(self, value: str, twin: Twin) -> str:
        """Return the value as the twin computes it; what reads no weight stays as it is."""
        if (value, twin.name) in self.copies:
            return self.copies[value, twin.name]
        producer = self.producers.get(value)
        self.copies[value, twin.name] = value
        if producer is None or not self._reads_weights(producer, twin.has):
            return value
        copy = onnx.NodeProto()
        copy.CopyFrom(producer)
        copy.name = f"{twin.name}/{producer.name}"
        del copy.input[:]
        copy.input.extend(self.copied(v, twin) for v in producer.input)
        for index, output in enumerate(producer.output):
            copy.output[index] = f"{twin.name}/{output}" if output else ""
            self.copies[output, twin.name] = copy.output[index]
        for entry in copy.metadata_props:
            entry.value = twin.note(entry.value)
        place = next(i for i, n in enumerate(self.graph.node) if n.output == producer.output)
        self.graph.node.insert(place + 1, copy)
        return self.copies[value, twin.name]

    def _is_new(self, value: str, producer: onnx.NodeProto) -> bool:
        """Whether a layer's call has weights of equal elements only, as two layers may have them by chance."""
        result = origin.result_of(_metadata(producer))
        nodes = [n for n in self.graph.node if origin.result_of(_metadata(n)) == result]
        weights = {v for n in nodes for v in n.input if v in self.weights}
        uniform = bool(weights) and all(is_uniform(self.source.array(w)) for w in weights)
        return value == result and uniform and bool(origin.parameters_of(_metadata(producer)))

    def _has_own_weights(self, node: onnx.NodeProto, old: str, new: str) -> bool:
        """Whether the file has parameters of layer `new` for those of layer `old` that a node depends on."""
        waiting, names, has = [node], set(), _layer(old, new).has
        while waiting:
            current = waiting.pop()
            if self._reads_weights(current, has):
                names.update(n for v in current.input for n in self.parameters.get(v, ()))
                waiting += [self.producers[v] for v in current.input if v in self.producers]
        own = (f"{new}{n[len(old) :]}" for n in names if n.startswith(f"{old}."))
        return any(n in self.told for n in own)

    def _reads_weights(self, node: onnx.NodeProto, has: Callable[[onnx.NodeProto], bool]) -> bool:
        """Whether a node of what was merged, or one that only moves weights, depends on them within it."""
        constant = not _scope(node) and all(v not in self.producers for v in node.input)
        if not (constant or has(node)):
            return False
        if any(v in self.weights for v in node.input):
            return True
        before = [self.producers[v] for v in node.input if v in self.producers]
        return any(self._reads_weights(n, has) for n in before)


def _layer(old: str, new: str) -> Twin:
    """The same layer of a list, further on: other modules and parameters."""

    def note(text: str) -> str:
        text = re.sub(rf"(?<![\w.]){re.escape(old)}(?!\w)", new, text)
        for kind in "pb":
            before, after = (f"%{kind}{origin.mangled(layer)[1:]}_" for layer in (old, new))
            text = text.replace(before, after)
        return text

    return Twin(new, lambda node: f"{_scope(node)}.".startswith(f"{old}."), note)


def _call(old: str, new: str) -> Twin:
    """Another module's call, whose name nothing tells: its parameters are named by the call."""

    def note(text: str) -> str:
        text = re.sub(r"%([pb])_\w*?([^\W_]+)\b", rf"%\1_{new}_\2", text)
        text = re.sub(rf"%{old}\b", f"%{new}", text)
        return f"['', '{new}', '{new}']" if text.startswith("['") and old in text else text

    return Twin(new, lambda node: origin.result_of(_metadata(node)) == old, note)


def two_of_a_list(a: str, b: str) -> tuple[str, str] | None:
    """Return the layers of one list that two modules belong to; None where they are not in two of one.

    >>> two_of_a_list("decoder.layers.0.attention", "decoder.layers.2.attention.key")
    ('decoder.layers.0', 'decoder.layers.2')
    >>> two_of_a_list("encoder.layers.0", "decoder.layers.1") is None
    True
    """
    left, right = a.split("."), b.split(".")
    for place, (x, y) in enumerate(zip(left, right, strict=False), 1):
        if x != y:
            numbers = x.isdigit() and y.isdigit()
            return (".".join(left[:place]), ".".join(right[:place])) if numbers else None
    return None


def _metadata(node: onnx.NodeProto) -> dict[str, str]:
    return origin.properties(node.metadata_props)


def _scope(node: onnx.NodeProto) -> str:
    return origin.scope_of(node.name, _metadata(node))


def _meant(node: onnx.NodeProto, index: int, metadata: dict[str, str]) -> list[str]:
    """Return the values of a node's call that its input `index` may have been: of the same kind as what it reads now.

    Where the call has as many as the node, it was the one in the same place: cat([a, b]) reads `a` twice.
    """
    values, kind = origin.arguments_of(metadata), _kind(node.input[index])
    own = values[index] if len(values) == len(node.input) else ""
    return [own] if own and _kind(own) == kind else [v for v in values if _kind(v) == kind]


def _kind(value: str) -> str:
    """What a value is the result of: `view_17` of `view`."""
    return re.sub(r"_\d+$", "", value)
