"""The seam for capabilities: each is a change of the model, and knows the way back into the file."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import onnx
import onnx_ir as ir

from onnxgrad.model.rounding import ROUNDED, rounds_by_itself
from onnxgrad.notes import Note

if TYPE_CHECKING:
    from onnxgrad.model.roles import Tensor
    from onnxgrad.model.source import OriginalModel


@dataclass
class Draft:
    """The file before it is written: its graph, and the numbers that go into it by tensor name.

    `tolerance` is how far the file's outputs may lie from the trained graph's, relative to the
    largest: a change that rounds (half precision, quantisation) raises it with a reason. `held` are
    trained tensors as the file holds them, where it rounds what the trained graph does not. `as_run`
    turns the written file into one that is tried in its place, where no CPU runs the file's type. `path` is the
    original's: numbers that it keeps in other files lie beside it.
    """

    proto: onnx.ModelProto
    tensors: dict[str, np.ndarray]
    tolerance: float = 1e-3
    held: dict[str, np.ndarray] = field(default_factory=dict)
    as_run: Callable[[onnx.ModelProto, Path | None], onnx.ModelProto] | None = None
    path: Path | None = None

    def __post_init__(self) -> None:
        if rounds_by_itself(self.proto):
            self.tolerance = max(self.tolerance, ROUNDED)


class Change:
    """A capability. What a subclass does not need it leaves out; the step never knows which were used.

    The order of one run: `rewrite` of every change, `apply` of every change, `judge`, training,
    and `write_back` of every change in the opposite order.
    """

    def rewrite(self, source: OriginalModel) -> None:
        """Change the file itself (new tensors, another head), before anything reads its graph."""

    def apply(self, model: ir.Model) -> None:
        """Change the graph that is trained and evaluated, which is otherwise the file's."""

    def judge(self, tensors: list[Tensor]) -> list[Tensor]:
        """Say anew what is a weight: an adapter freezes the rest and trains its own."""
        return tensors

    def undecayed(self) -> Iterable[str]:
        """Name trained tensors that weight decay must not shrink, after `apply`."""
        return ()

    def statistics(self) -> Mapping[str, str | None]:
        """Name tensors that a checkpoint holds beside the weights, with the values of the training graph
        that replace them after a step; None for one that stays."""
        return {}

    def switches(self) -> Mapping[str, np.ndarray]:
        """Name tensors that steps read anew, with the arrays that they are read from; they are the change's own."""
        return {}

    def begin_epoch(self, epoch: int) -> None:
        """Say which epoch the next steps belong to, from 0; switches may follow."""

    def describe(self) -> Iterable[Note]:
        """Say what was done and why, after `apply`."""
        return ()

    def write_back(self, draft: Draft) -> None:
        """Turn trained tensors into what the file holds: merge, transpose, round, quantise."""
