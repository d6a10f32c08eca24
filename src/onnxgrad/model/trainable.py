"""One object that answers: what will be trained, how, and why. `inspect` prints it, Trainer uses it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir

from onnxgrad.graph import load
from onnxgrad.graph.nodes import values_of
from onnxgrad.model import parameters, roles
from onnxgrad.model.change import Change, Draft
from onnxgrad.model.distances import Distances
from onnxgrad.model.doubts import doubts
from onnxgrad.model.formula import Formula
from onnxgrad.model.instances import InstanceStatistics
from onnxgrad.model.padding import Padding
from onnxgrad.model.past import WithoutPast
from onnxgrad.model.precision import Widen
from onnxgrad.model.quantize.fake import FakeQuantise
from onnxgrad.model.quantize.integers import is_quantised
from onnxgrad.model.repeat import Repeat
from onnxgrad.model.restore import Restore
from onnxgrad.model.retie import Retie
from onnxgrad.model.roles import Tensor
from onnxgrad.model.source import OriginalModel
from onnxgrad.model.unmerge import Unmerge
from onnxgrad.model.untie import Untie, check_used
from onnxgrad.notes import Note


class TrainableModel:
    """A model as something to train.

    source: the file that will be written, with other numbers in it.
    graph: what is trained and evaluated, in inference form; it differs from the file where a
        change says so (float32 for float16, one tensor for two equal ones).
    changes: the capabilities in use, each with its way back into the file.
    """

    def __init__(
        self,
        model: Any,
        *,
        tie: str | Iterable[str] = (),
        untie: str | Iterable[str] = (),
        keep_float32: bool = False,
        changes: Iterable[Change] = (),
    ):
        self.source = model if isinstance(model, OriginalModel) else OriginalModel(model)
        changes = list(changes)
        if (
            is_quantised(self.source.proto) and not changes
        ):  # an adapter leaves integers as they are
            changes = [FakeQuantise()]
        self._sharing = Untie(tie, untie), Retie(untie)
        own = [
            Unmerge(),
            Restore(),
            *self._sharing,
            Widen(keep_float32),
            Formula(),
            InstanceStatistics(),
            Repeat(),
            Distances(),
            Padding(),
            WithoutPast(),
        ]
        self.changes: list[Change] = [*own, *changes]
        for change in self.changes:
            change.rewrite(self.source)
        self.graph = load(self.source.as_ir())
        look_through_identity(self.graph.graph)
        forget_made_up_sizes(self.graph.graph)
        for change in self._in_order():
            change.apply(self.graph)
        untied, retied = self._sharing
        check_used("untie", untied.untie, [*untied.known, *retied.known])

    def _in_order(self) -> list[Change]:
        """Half precision first: the others see float32 only."""
        return sorted(self.changes, key=lambda c: not isinstance(c, Widen))

    # ---- what is trained ---------------------------------------------------------------------

    @property
    def outputs(self) -> dict[str, ir.Value]:
        """The outputs of the graph, by name."""
        return {v.name: v for v in self.graph.graph.outputs}

    def float_outputs(self) -> list[str]:
        """The outputs that a loss can judge; the first is what one loss judges."""
        return [n for n, v in self.outputs.items() if v.dtype in roles.TYPES]

    def tensors(self, judged: Iterable[str] | None = None) -> list[Tensor]:
        """Return every float tensor with what it is, for losses of the outputs `judged`.

        In the order of the file; without `judged`, for a loss of the first float output.
        """
        names = list(self.float_outputs()[:1] if judged is None else judged)
        outputs = self.outputs
        found = roles.judge(self.graph, [outputs[n] for n in names])
        for change in self.changes:
            found = change.judge(found)
        order = {name: i for i, name in enumerate(self.source.tensors)}
        return sorted(found, key=lambda t: order.get(t.name, len(order)))

    def select(self, wanted: str | Iterable[str], judged: Iterable[str] | None = None) -> list[str]:
        """Return the names that `trainable` means, in the order of the file.

        "all", "head" (the last layer), a name, a glob (`encoder.*`), a regular expression that
        matches the whole name, or a list of these. Raises ValueError for one that means nothing.
        """
        return parameters.select(wanted, self.graph, self.tensors(judged))

    def values(self) -> dict[str, ir.Value]:
        """Return every named value of the graph."""
        return values_of(self.graph)

    def arrays(self, names: Iterable[str]) -> dict[str, np.ndarray]:
        """Return the numbers of tensors, as the file has them."""
        values = self.values()
        return {n: ir.convenience.get_const_tensor(values[n]).numpy() for n in names}

    # ---- what is said and written ------------------------------------------------------------

    def notes(self, tensors: list[Tensor]) -> list[Note]:
        """Return what every change did, and what is not trained, and why; `tensors` as judged.

        That a mask is shared or repeated is not worth a note.
        """
        idle = {t.name for t in tensors if not t.trained}
        done = [note for change in self.changes for note in change.describe()]
        silent = ("tied", "repeated")
        done = [note for note in done if note.kind not in silent or note.subject not in idle]
        return [*self._form(), *done, *roles.notes(tensors), *doubts(self.graph, tensors)]

    def _form(self) -> list[Note]:
        """Say that the file came as it trains and is written as it is deployed."""
        names = self.source.trained_form
        if not names:
            return []
        what = (
            f"{names[0]!r} is"
            if len(names) == 1
            else f"{len(names)} nodes, {names[0]!r} first, are"
        )
        text = f"{what} in training form: what is evaluated and written is in inference form"
        return [Note("training form", names[0], text)]

    def write_back(self, tensors: Mapping[str, np.ndarray]) -> Draft:
        """Return the file with trained tensors in it, by way of every change, the last one first."""
        proto = onnx.ModelProto()
        proto.CopyFrom(self.source.proto)
        draft = Draft(proto, dict(tensors), path=self.source.path)
        for change in reversed(self._in_order()):
            change.write_back(draft)
        return draft


def judged_note(floats: list[str]) -> Note:
    """Say which of several outputs one loss judges."""
    return Note(
        "judged",
        floats[0],
        f"the loss is of output {floats[0]!r}, the first of {len(floats)}",
        "give a dict by output name to judge others",
    )


def look_through_identity(graph: ir.Graph) -> None:
    """Let the users of a tensor's Identity read the tensor: statistics are then seen as such."""
    for node in list(graph):
        if node.op_type != "Identity" or node.domain or node.inputs[0] is None:
            continue
        value, output = node.inputs[0], node.outputs[0]
        if value.is_initializer() and not output.is_graph_output():
            ir.convenience.replace_all_uses_with(output, value)
            graph.remove(node, safe=True)


def forget_made_up_sizes(graph: ir.Graph) -> None:
    """PyTorch's older exporter calls sizes that it does not know `Conv167_dim_0`, and two of a shape alike."""
    for value in (*graph.inputs, *graph.outputs):
        dims = [] if value.shape is None else list(value.shape)
        names = [str(getattr(d, "value", d)) for d in dims]
        twice = [
            n for n in names if names.count(n) > 1 and re.fullmatch(r"[A-Za-z]+\d+_dim_\d+", n)
        ]
        if twice:
            value.shape = ir.Shape(
                [None if n in twice else d for n, d in zip(names, dims, strict=True)]
            )
