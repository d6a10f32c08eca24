"""A node in ONNX Runtime with everything bound once: ours (with --onnxgrad), or the old package in its environment."""

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
    session = onnxruntime.InferenceSession(
        f"{folder}/model.onnx", options, providers=["CPUExecutionProvider"]
    )
    first = session.run(line["outputs"], inputs)
    results = {n: aligned(r) for n, r in zip(line["outputs"], first)}
    binding = session.io_binding()
    for name, array in inputs.items():
        binding.bind_cpu_input(name, array)
    for name, array in results.items():
        binding.bind_output(name, "cpu", 0, array.dtype, array.shape, array.ctypes.data)

    def call():
        session.run_with_iobinding(binding)

    return call, lambda: results


serve(prepare)
