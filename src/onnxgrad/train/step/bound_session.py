"""A session whose weights and results are bound to memory once; a run binds only the batch."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import numpy as np
import onnx

from onnxgrad.files.system import freed_memory_returned
from onnxgrad.ort import HeldModel, disable, session

if TYPE_CHECKING:
    import onnxruntime
    from onnxruntime import OrtValue


MANY = (
    1 << 24
)  # bytes of weights that a session copies: from here on it matters what it leaves behind


def session_options(threads: int | None, optimised: bool = True) -> onnxruntime.SessionOptions:
    """Return the options that training runs best with; docs/trainer.md has the measurements."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    if not optimised:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    if threads is not None:
        options.intra_op_num_threads = threads
    for name, value in _waiting(onnxruntime.__version__).items():
        options.add_session_config_entry(name, value)
    # Weights behind a DequantizeLinear: onnxruntime would round what their products read to 8 bits as well.
    options.add_session_config_entry("session.qdq_matmulnbits_accuracy_level", "1")
    # In the order of the graph: onnxruntime's own makes the masks of all layers (of Max, say) before the first is used,
    # and a step of some networks then takes twice the memory.
    options.execution_order = onnxruntime.ExecutionOrder.PRIORITY_BASED
    # A pattern plans one block for a whole run, beside what the first run took: a third more memory, no time.
    options.enable_mem_pattern = False
    options.log_severity_level = 4  # warnings are about shapes that it reuses; errors are raised
    return options


def keep_layout(
    options: onnxruntime.SessionOptions, model: onnx.ModelProto
) -> onnxruntime.SessionOptions:
    """Leave images as they lie, where no convolution has weights that stay.

    onnxruntime blocks the channels of such convolutions once. Without one it would do so around every pool, in each
    step.
    """
    fixed = {tensor.name for tensor in model.graph.initializer}
    if any(n.op_type == "Conv" and n.input[1] in fixed for n in model.graph.node):
        return options
    return disable(options, "NchwcTransformer")


def _waiting(version: str) -> dict[str, str]:
    """How threads without work wait: awake from one node to the next, asleep between runs.

    A thread that stays awake takes the core that the optimizer, or another process, needs. Before
    1.27 onnxruntime cannot say for how long: there threads sleep at once.
    """
    if tuple(map(int, version.split(".")[:2])) < (1, 27):
        return {"session.intra_op.allow_spinning": "0"}
    return {"session.intra_op.spin_duration_us": "50", "session.force_spinning_stop": "1"}


class BoundSession:
    """Runs one model. `inputs` and `outputs` are arrays that stay where they are."""

    def __init__(
        self,
        model: onnx.ModelProto | HeldModel,
        options: onnxruntime.SessionOptions,
        inputs: Mapping[str, np.ndarray],
        outputs: Mapping[str, np.ndarray],
        free: Iterable[str] = (),
    ):
        """`free` names outputs of a shape that only the run knows; `run` returns them."""
        bound = model.bound if isinstance(model, HeldModel) else {}
        copied = sum(a.nbytes for a in model.held.values()) if isinstance(model, HeldModel) else 0
        with freed_memory_returned() if copied >= MANY else contextlib.nullcontext():
            self.session = session(model, options)
        self.free = list(free)
        self._inputs = {**inputs, **bound}
        self._bind(outputs)

    def writing_to(self, outputs: Mapping[str, np.ndarray]) -> BoundSession:
        """Return a binding of the same session that writes to other arrays."""
        other = copy.copy(self)
        other._bind(outputs)
        return other

    def _bind(self, outputs: Mapping[str, np.ndarray]) -> None:
        from onnxruntime import OrtValue

        self._outputs = outputs
        self._binding = self.session.io_binding()
        self._values = []  # keep the memory alive: a binding holds no reference to it
        for name, array in self._inputs.items():
            value = OrtValue.ortvalue_from_numpy(array)
            self._binding.bind_ortvalue_input(name, value)
            self._values.append((value, array))
        for name, array in outputs.items():
            value = OrtValue.ortvalue_from_numpy(array)
            self._binding.bind_ortvalue_output(name, value)
            self._values.append((value, array))
        self._fixed = len(outputs)

    def run(self, batch: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Run on a batch of contiguous arrays; return the free outputs."""
        if any(a.dtype == object for a in batch.values()):
            return dict(zip(self.free, self.run_unbound(batch), strict=True))
        values = self.run_values(batch)
        return {name: value.numpy() for name, value in zip(self.free, values, strict=True)}

    def run_values(self, batch: Mapping[str, np.ndarray | OrtValue]) -> list[OrtValue]:
        """As `run`, for arrays and OrtValues, with OrtValues as the result."""
        binding = self._binding
        for name, value in batch.items():
            if isinstance(value, np.ndarray):
                binding.bind_cpu_input(name, value)
            else:
                binding.bind_ortvalue_input(name, value)
        for name in self.free:  # anew, or it would keep the shape of the last batch
            binding.bind_output(name, "cpu")
        self.session.run_with_iobinding(binding)
        return binding.get_outputs()[self._fixed :] if self.free else []

    def run_unbound(self, batch: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        """As `run_values`, for batches with strings, which cannot be bound: results are copied."""
        feeds = {**self._inputs, **batch}
        found = self.session.run([*self._outputs, *self.free], feeds)
        for array, value in zip(self._outputs.values(), found, strict=False):
            array[...] = value
        return found[self._fixed :]
