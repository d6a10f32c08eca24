"""Scales and zero points of a trained graph: learned with the weights, observed for an epoch, or fixed.

      learned     scale = exp(u), u is trained (LSQ); zero points stay
      observed    low, high = moving averages of the range, scale and zero point follow; then fixed
      fixed       as calibrated
      untouched   as the file has them, which is not said in a checkpoint

A scale that several quantisers share stays one: integers then pass through the nodes between them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from onnxgrad import kernels
from onnxgrad.contracts import DOMAIN
from onnxgrad.errors import ModelError
from onnxgrad.graph.integers import RANGES
from onnxgrad.model.quantize.integers import initializer

LOG_SCALE = ".log_scale"
# The largest weight of a symmetric range is 127.5 (or 7.5) scales, a tie: the last bit of exp would decide whether the
# graph and the file round it alike. A scale larger by so much puts it below the tie in both.
OFF_THE_TIE = 1e-6
OBSERVE = "quantise/observe"  # an input of the training graph: 1 while ranges are observed
MOMENTUM = 0.01  # of an activation's range; that of a weight is what it is now


@dataclass(frozen=True)
class Quantiser:
    """What is quantised, and how: a float value, the file's scale and zero point, their layout."""

    x: ir.Value
    scale: ir.Value
    zero: ir.Value | None
    dtype: ir.DataType
    axis: int
    block: int
    weight: bool

    def layout(self) -> dict[str, int]:
        low, high = RANGES[self.dtype]
        return dict(quant_min=low, quant_max=high, axis=self.axis, block_size=self.block)

    def has_other_signs(self) -> bool:
        """Say whether a scale of the file is not positive."""
        return not (self.scale.const_value.numpy() > 0).all()

    def zeros(self) -> np.ndarray:
        """Return the zero points as floats."""
        if self.zero is None:
            return np.zeros(self.scale.const_value.shape, np.float32)
        return self.zero.const_value.numpy().astype(np.float32)


def _is_given(quantiser: Quantiser) -> bool:
    """Say whether the range follows from the operator: a Softmax gives 0 to 1."""
    node = quantiser.x.producer()
    return node is not None and node.op_type == "Softmax" and not node.domain


def _whole_steps(scale: np.ndarray) -> np.ndarray:
    """Return the nearest scale s of which 1/s, in float, is not below a whole number.

    onnxruntime's QLinearSoftmax cuts 1/s to an integer: of 1/255 as a float it makes 254, and every probability is
    too small by a part in 255. One unit in the last place less, and it is 255.
    """
    steps = np.round(1 / scale.astype(np.float64))
    made = (1 / steps).astype(np.float32)
    return np.where(np.float32(1) / made < steps, np.nextafter(made, np.float32(0)), made)


class Scales:
    """As the file has them. Subclasses say what changes, and what a checkpoint holds."""

    said = "scales stay as they are"

    def __init__(self) -> None:
        self.made: dict[str, tuple[ir.Value, ir.Value]] = {}  # by the name of the file's scale
        self.quantisers: dict[str, Quantiser] = {}
        self.given: dict[str, np.ndarray] = {}  # scales that follow from the operator
        self.trained: dict[str, str] = {}  # scale -> what is trained in its place
        self.fixed: set[str] = set()  # tensors that are neither weights nor worth a note
        self.statistics: dict[str, str | None] = {}  # tensor -> its new value; None: it stays
        self.switches: dict[str, np.ndarray] = {}

    def of(self, model: ir.Model, quantiser: Quantiser) -> tuple[ir.Value, ir.Value]:
        """Return scale and zero point as values of the trained graph."""
        name = quantiser.scale.name
        if name not in self.made:
            if _is_given(quantiser):
                self.given[name] = _whole_steps(quantiser.scale.const_value.numpy())
                quantiser.scale.const_value = ir.tensor(self.given[name], name=name)
                self.made[name] = Scales._make(self, model, quantiser)
            elif quantiser.has_other_signs():
                self.made[name] = self._mirrored(model, quantiser)
            else:
                self.quantisers[name] = quantiser
                self.made[name] = self._make(model, quantiser)
        return self.made[name]

    def _mirrored(self, model: ir.Model, quantiser: Quantiser) -> tuple[ir.Value, ir.Value]:
        """Of scales that are not positive: their sizes, and the zero points of the mirrored range.

        onnxruntime's symmetric 4 bits have negative scales, which put the larger end on either side, and 0 for
        blocks of zeros. With s < 0, (q - z)·s = (z - q)·|s|, and z - q lies between z - high and z - low.
        """
        scale, zeros = quantiser.scale.const_value.numpy(), quantiser.zeros()
        low, high = RANGES[quantiser.dtype]
        sizes = np.maximum(np.abs(scale), np.finfo(np.float32).tiny)
        found = {"size": sizes, "zero": np.where(scale < 0, low + high - zeros, zeros)}
        made = [
            initializer(model, f"{quantiser.scale.name}/{n}", a.astype(np.float32))
            for n, a in found.items()
        ]
        self.fixed |= {quantiser.scale.name, *(value.name for value in made)}
        return made[0], made[1]

    def _make(self, model: ir.Model, quantiser: Quantiser) -> tuple[ir.Value, ir.Value]:
        zero = self._zero(model, quantiser)
        self.fixed.add(quantiser.scale.name)
        return quantiser.scale, zero

    def _zero(self, model: ir.Model, quantiser: Quantiser) -> ir.Value:
        zero = initializer(model, _zero_name(quantiser), quantiser.zeros())
        self.fixed.add(zero.name)
        return zero

    def attributes(self, weight: bool) -> dict[str, int | str]:
        """Return what FakeQuant is told beside its layout."""
        return {}

    def begin_epoch(self, epoch: int) -> None:
        """Say which epoch the next steps belong to, from 0."""

    def numbers(self, tensors: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Take what belongs here out of `tensors`; return the file's scales and zero points."""
        found: dict[str, np.ndarray] = dict(self.given)
        for name, quantiser in self.quantisers.items():
            for key, array in self._numbers(name, quantiser, tensors).items():
                if key in found and not np.array_equal(found[key], array):
                    raise ModelError(
                        f"quantize: scales share the zero point {key!r} and would need two; "
                        "scales=learned keeps it"
                    )
                found[key] = array
        return found

    def _numbers(self, name: str, quantiser: Quantiser, tensors) -> dict[str, np.ndarray]:
        return {}

    def _kept_zero(self, quantiser: Quantiser, tensors) -> dict[str, np.ndarray]:
        zero = tensors.pop(self.made[quantiser.scale.name][1].name, None)
        return {} if quantiser.zero is None or zero is None else {quantiser.zero.name: zero}


class Fixed(Scales):
    """As calibrated; a checkpoint holds them, so that a resumed run has no others."""

    def _make(self, model: ir.Model, quantiser: Quantiser) -> tuple[ir.Value, ir.Value]:
        scale, zero = super()._make(model, quantiser)
        self.statistics |= {scale.name: None, zero.name: None}
        return scale, zero

    def _numbers(self, name: str, quantiser: Quantiser, tensors) -> dict[str, np.ndarray]:
        return {name: tensors.pop(name), **self._kept_zero(quantiser, tensors)}


class Learned(Scales):
    """Trained as logarithms: they stay positive, and a step changes them by a share of themselves."""

    @property
    def said(self) -> str:
        return f"{len(self.trained)} scales are learned"

    def _make(self, model: ir.Model, quantiser: Quantiser) -> tuple[ir.Value, ir.Value]:
        zero = self._zero(model, quantiser)
        self.statistics[zero.name] = None
        scale = quantiser.scale
        name = f"{scale.name}{LOG_SCALE}"
        numbers = np.log(scale.const_value.numpy().astype(np.float64))
        numbers = numbers + OFF_THE_TIE if quantiser.weight else numbers
        learned = initializer(model, name, numbers.astype(np.float32))
        exp = ir.Node("", "Exp", [learned], num_outputs=1, name=f"{name}/exp")
        _describe(exp.outputs, [f"{name}/exp"], learned)
        model.graph.append(exp)
        self.trained[scale.name] = learned.name
        return exp.outputs[0], zero

    def attributes(self, weight: bool) -> dict[str, int | str]:
        return dict(scale_gradient="lsq_log", batched=int(not weight))

    def _numbers(self, name: str, quantiser: Quantiser, tensors) -> dict[str, np.ndarray]:
        found = self._kept_zero(quantiser, tensors)
        log = tensors.pop(self.trained[name], None)
        if log is not None:
            found[name] = np.exp(log.astype(np.float64)).astype(np.float32)
        return found


class Observed(Scales):
    """Ranges follow the activations as moving averages, and the weights, in the first epoch."""

    said = "scales follow what is seen in the first epoch, and stay from then on"

    def __init__(self) -> None:
        super().__init__()
        self.switches = {OBSERVE: np.ones(1, np.int64)}
        self._switch: ir.Value | None = None

    def begin_epoch(self, epoch: int) -> None:
        self.switches[OBSERVE][0] = int(epoch == 0)

    def _make(self, model: ir.Model, quantiser: Quantiser) -> tuple[ir.Value, ir.Value]:
        if self._switch is None:  # what is evaluated observes nothing
            self._switch = initializer(model, OBSERVE, np.zeros(1, np.int64))
        name, layout = quantiser.scale.name, quantiser.layout()
        scale, zeros = quantiser.scale.const_value.numpy(), quantiser.zeros()
        ends = {
            "low": (layout["quant_min"] - zeros) * scale,
            "high": (layout["quant_max"] - zeros) * scale,
        }
        low, high = (initializer(model, f"{name}.{k}", a) for k, a in ends.items())
        attributes = {**layout, "symmetric": int(self._symmetric(quantiser))}
        node = ir.Node(
            DOMAIN,
            "QuantObserver",
            [quantiser.x, low, high, self._switch],
            [
                *(ir.AttrInt64(k, v) for k, v in attributes.items()),
                ir.AttrFloat32("momentum", 1.0 if quantiser.weight else MOMENTUM),
            ],
            num_outputs=4,
            name=f"{name}/observer",
        )
        names = [f"{name}.{k}" for k in ("low/updated", "high/updated", "scale", "zero")]
        _describe(node.outputs, names, low)
        model.graph.append(node)
        self.statistics |= {low.name: names[0], high.name: names[1]}
        self.fixed |= {low.name, high.name, self._switch.name}
        return node.outputs[2], node.outputs[3]

    def _symmetric(self, quantiser: Quantiser) -> bool:
        low, high = RANGES[quantiser.dtype]
        return bool((quantiser.zeros() == low + (high - low) // 2 + 1).all())

    def _numbers(self, name: str, quantiser: Quantiser, tensors) -> dict[str, np.ndarray]:
        low, high = (tensors.pop(f"{name}.{k}") for k in ("low", "high"))
        # Only its shape matters; the kernel says what the ranges mean, here as in training.
        x = np.zeros(
            tuple(int(d) for d in quantiser.x.shape) if quantiser.weight else 1, np.float32
        )
        now = kernels.quant_observer(
            x, low, high, np.zeros(1, np.int64),
            symmetric=int(self._symmetric(quantiser)), **quantiser.layout(),
        )  # fmt: skip
        zero = {} if quantiser.zero is None else {quantiser.zero.name: now.zero_point}
        return {name: now.scale, **zero}


KINDS: Mapping[str, type[Scales]] = {"learned": Learned, "observed": Observed, "fixed": Fixed}


def _zero_name(quantiser: Quantiser) -> str:
    return f"{quantiser.scale.name}/zero"


def _describe(values: Iterable[ir.Value], names: Iterable[str], like: ir.Value) -> None:
    for value, name in zip(values, names, strict=True):
        value.name, value.shape, value.type = name, like.shape, like.type
