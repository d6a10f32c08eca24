"""A node in ONNX Runtime with everything bound once: ours (with --onnxgrad), the old package in its environment, or
another model of the line (its file name as the argument)."""

import json
import sys
from pathlib import Path

import onnxruntime
from protocol import aligned, load_inputs, serve


def prepare(folder, threads):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    if "--onnxgrad" in sys.argv:
        import onnxgrad

        onnxgrad.register(options)
    line = json.loads(Path(folder, "line.json").read_text())
    inputs = load_inputs(folder)
    names = [a for a in sys.argv[1:] if a.endswith(".onnx")]
    session = onnxruntime.InferenceSession(
        f"{folder}/{names[0] if names else 'model.onnx'}",
        options,
        providers=["CPUExecutionProvider"],
    )
    inputs = {i.name: inputs[i.name] for i in session.get_inputs()}
    outputs = [o.name for o in session.get_outputs()] if names else line["outputs"]
    results = {n: aligned(r) for n, r in zip(outputs, session.run(outputs, inputs))}
    binding = session.io_binding()
    for name, array in inputs.items():
        binding.bind_cpu_input(name, array)
    for name, array in results.items():
        binding.bind_output(name, "cpu", 0, array.dtype, array.shape, array.ctypes.data)

    def call():
        session.run_with_iobinding(binding)

    return call, lambda: results


serve(prepare)
