"""LoRA as a change of the model: branches go in, everything else is frozen, and the file gets them back."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx_ir as ir

from onnxgrad.errors import AdapterError
from onnxgrad.model.change import Change, Draft
from onnxgrad.model.lora import adapter as adapters
from onnxgrad.model.lora import layers as layers_of
from onnxgrad.model.lora.branch import Branch, Parts, initializer
from onnxgrad.model.lora.layers import Layer
from onnxgrad.model.lora.settings import Lora, resolve
from onnxgrad.model.roles import FROZEN, WEIGHT, Tensor
from onnxgrad.notes import Note

if TYPE_CHECKING:
    from onnxgrad.model.lora.adapter import Adapter


class LoraChange(Change):
    """The capability. `adapter` is there after `apply`."""

    def __init__(self, lora: Lora):
        self.lora = lora
        self.adapter: Adapter | None = None

    def apply(self, model: ir.Model) -> None:
        """Put a branch beside every layer that the setting means."""
        self.adapter = adapters.plan(model, self.lora)
        adapters.apply(model, self.adapter)

    def judge(self, tensors: list[Tensor]) -> list[Tensor]:
        """Train the branches and what is saved in full; freeze the rest."""
        trained = set(self.adapter.trained)
        return [
            dataclasses.replace(t, kind=WEIGHT, reason="")
            if t.name in trained
            else dataclasses.replace(t, kind=FROZEN, reason="the adapter leaves it as it is")
            if t.trained
            else t
            for t in tensors
        ]

    def describe(self) -> Iterable[Note]:
        """Say what is adapted, and what it costs."""
        notes = [Note("lora", "", text) for text in self.adapter.notes()]
        if not self.lora.targets and self.lora.start is None:
            first = notes[0]
            notes[0] = dataclasses.replace(first, change="targets=... adapts other layers")
        return notes

    def write_back(self, draft: Draft) -> None:
        """Merge branches into float weights; beside weights in small integers they stay, as constants."""
        tensors, adapter = draft.tensors, self.adapter
        merged = dataclasses.replace(
            adapter, layers=[x for x in adapter.layers if x.weight.is_float]
        )
        kept = [x for x in adapter.layers if not x.weight.is_float]
        new = merged.merged(tensors)
        known = {t.name for t in draft.proto.graph.initializer}
        known.update(o for n in draft.proto.graph.node if n.op_type == "Constant" for o in n.output)
        for name in new:
            if name not in known:
                raise AdapterError(
                    f"the weight {name!r} is not a tensor of the file, so that nothing can be merged into it; "
                    "write an adapter instead"
                )
        draft.tensors = {n: a for n, a in tensors.items() if n not in adapter.tensors} | new
        if kept:
            draft.proto = with_branches(draft.proto, adapter, kept, tensors)


def with_branches(proto, adapter: Adapter, kept: list[Layer], tensors: Mapping[str, np.ndarray]):
    """Return the file with the branches of some layers as constants in it."""
    model = adapters.of_file(proto)
    known = {layer.name: layer for layer in layers_of.find(model)}
    numbers = adapter.parameters(tensors)
    branch = Branch(model)
    for layer in kept:
        own = known.get(layer.name)
        if own is None:
            raise AdapterError(f"the file has no layer {layer.name!r} of its own")
        names = adapter.names(layer)
        values = {k: initializer(model.graph, names[k], numbers[names[k]]) for k in "ab"}
        parts = Parts(values["a"], values["b"])
        gain = adapters.gain_name(layer)
        if gain in numbers:
            parts.gain = initializer(model.graph, gain, numbers[gain])
        branch.write(own, parts)
    return ir.to_proto(model)


def adapter_changes(lora: Any, trainable: Any) -> list[Change]:
    """The change that a Trainer's `lora` asks for; what is trained beside it has a setting of its own."""
    settings = resolve(lora)
    if settings is None:
        return []
    if trainable != "all":
        raise ValueError(
            f"trainable is {trainable!r} beside lora, which freezes the model: name what is trained in full "
            "in Lora(modules_to_save=...)"
        )
    return [LoraChange(settings)]
