"""The optimizer model: a list of settings in the form of a graph, run by onnxgrad's own kernels.

gradients → [InplaceClipGradNorm] → AdamWOptimizer or SGDOptimizerV2
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass

import numpy as np
import onnx

from onnxgrad import _native
from onnxgrad.dropin.old.old_ops import attributes
from onnxgrad.dropin.old.training_model import load
from onnxgrad.errors import DropInError
from onnxgrad.train.optimizers import SGD, AdamW, Incoming
from onnxgrad.train.step.buffers import Buffers

MOMENTS = {"AdamWOptimizer": ("exp_avg", "exp_avg_sq"), "SGDOptimizerV2": ()}
SAVED = {"AdamWOptimizer": 2, "SGDOptimizerV2": 1}  # the old package saves a moment for SGD too
PYTORCH, HUGGING_FACE = 0, 1  # values of adam_mode
LONG_AGO = 1e15  # a step at which the corrections of the bias are 1


@dataclass(frozen=True)
class Algorithm:
    """What an optimizer model says."""

    kind: str
    settings: dict[str, float]
    max_norm: float | None = None

    @property
    def moments(self) -> tuple[str, ...]:
        """Return the names of the state that it keeps per parameter."""
        return MOMENTS[self.kind]

    def update(self, store: Buffers, lr: float, step: int) -> None:
        """Update every parameter from its gradient, in place; steps count from 1."""
        if self.max_norm is not None:
            _clip(store, self.max_norm)
        for segment in store.segments:
            if self.kind == "SGDOptimizerV2":
                SGD(lr=0.0).update(segment, lr, step, Incoming())
            else:
                optimizer, rate, step = self._adam(lr, step)
                optimizer.update(segment, rate, step, Incoming())

    def _adam(self, lr: float, step: float) -> tuple[AdamW, float, float]:
        """Return PyTorch's AdamW with the settings that make it take the same step.

        With m, v the moments and c1, c2 the corrections of their bias, PyTorch computes
        w·(1 - lr·decay) - lr·m/c1 / (√(v/c2) + ε); Hugging Face (adam_mode 1) computes
        (w - lr·√c2/c1·m / (√v + ε))·(1 - lr·decay). So ε becomes ε/√c2, and the rate and the
        decay change places with their product.
        """
        s = self.settings
        if not s["correct_bias"]:
            step = LONG_AGO
        eps, decay, rate = s["epsilon"], s["weight_decay"], lr
        if s["adam_mode"] == HUGGING_FACE:
            eps /= math.sqrt(1 - s["beta"] ** step)
            kept = 1 - lr * decay
            if kept > 0:
                rate, decay = lr * kept, decay / kept
        optimizer = AdamW(0.0, (s["alpha"], s["beta"]), eps, decay)
        return optimizer, rate, step


def _clip(store: Buffers, max_norm: float) -> None:
    """Shrink the gradients themselves to the norm `max_norm`, as InplaceClipGradNorm does."""
    norm = math.sqrt(sum(_native.sum_of_squares([s.g]) for s in store.segments))
    scale = max_norm / (norm + 1e-6)
    if scale < 1:
        for segment in store.segments:
            np.multiply(segment.g, segment.g.dtype.type(scale), out=segment.g)


DEFAULTS = {"alpha": 0.9, "beta": 0.999, "epsilon": 1e-8, "weight_decay": 1e-2,
            "correct_bias": 1, "adam_mode": PYTORCH}  # fmt: skip


def read_optimizer(path: str | os.PathLike[str]) -> Algorithm:
    """Return the algorithm of the optimizer model at `path`."""
    model = load(path, "optimizer")
    nodes = [n for n in model.graph.node if n.op_type in MOMENTS]
    if len({n.op_type for n in nodes}) != 1:
        listed = ", ".join(n.op_type for n in model.graph.node[:8]) or "nothing"
        raise DropInError(
            f"the optimizer model {os.fspath(path)} has {len(nodes)} optimizer nodes "
            f"({listed}), expected one of {' or '.join(MOMENTS)}; give the optimizer_model.onnx "
            "that generate_artifacts wrote"
        )
    node = nodes[0]
    settings = {k: v for k, v in {**DEFAULTS, **attributes(node)}.items() if k in DEFAULTS}
    _check_mode(settings, path)
    return Algorithm(node.op_type, settings, _max_norm(model))


def _check_mode(settings: dict[str, float], path: str | os.PathLike[str]) -> None:
    if settings["adam_mode"] not in (PYTORCH, HUGGING_FACE):
        raise DropInError(
            f"the optimizer model {os.fspath(path)} has adam_mode {settings['adam_mode']}, "
            "expected 0 (PyTorch) or 1 (Hugging Face)"
        )


def _max_norm(model: onnx.ModelProto) -> float | None:
    for node in model.graph.node:
        if node.op_type == "InplaceClipGradNorm":
            return float(attributes(node).get("max_norm", 1.0))
    return None
