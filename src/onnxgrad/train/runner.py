"""A session whose weights and results are bound to memory once; a run binds only the batch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import numpy as np
import onnx

from onnxgrad.ort import session

if TYPE_CHECKING:
    import onnxruntime


def session_options(threads: int | None) -> onnxruntime.SessionOptions:
    """Return the options that training runs best with; docs/training.md has the measurements."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    if threads is not None:
        options.intra_op_num_threads = threads
    # Waiting threads sleep: a spinning one takes the core that the optimizer, or another process, needs.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    # A pattern plans one block for a whole run, beside what the first run took: a third more memory, no time.
    options.enable_mem_pattern = False
    options.log_severity_level = 3  # warnings are about shapes that a training graph reuses
    return options


class Runner:
    """Runs one model. `inputs` and `outputs` are arrays that stay where they are."""

    def __init__(
        self,
        model: onnx.ModelProto,
        options: onnxruntime.SessionOptions,
        inputs: Mapping[str, np.ndarray],
        outputs: Mapping[str, np.ndarray],
        free: Iterable[str] = (),
    ):
        """`free` names outputs of a shape that only the run knows; `run` returns them."""
        from onnxruntime import OrtValue

        self.session = session(model, options)
        self.free = list(free)
        self._binding = self.session.io_binding()
        self._values = []  # keep the memory alive: a binding holds no reference to it
        for name, array in inputs.items():
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
        binding = self._binding
        for name, array in batch.items():
            binding.bind_cpu_input(name, array)
        for name in self.free:  # anew, or it would keep the shape of the last batch
            binding.bind_output(name, "cpu")
        self.session.run_with_iobinding(binding)
        if not self.free:
            return {}
        values = binding.get_outputs()[self._fixed :]
        return {name: value.numpy() for name, value in zip(self.free, values, strict=True)}
