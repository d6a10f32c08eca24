"""A node in ONNX Runtime with everything bound once: ours (with --onnxgrad), or the old package in its environment."""

import json
import sys

import numpy as np
import onnxruntime
from protocol import serve


def prepare(folder, threads):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    if "--onnxgrad" in sys.argv:
        import onnxgrad

        onnxgrad.register(options)
    line = json.load(open(f"{folder}/line.json"))
    inputs = dict(np.load(f"{folder}/inputs.npz"))
    session = onnxruntime.InferenceSession(f"{folder}/model.onnx", options, providers=["CPUExecutionProvider"])
    first = session.run(line["outputs"], inputs)
    results = {n: np.ascontiguousarray(r) for n, r in zip(line["outputs"], first)}
    binding = session.io_binding()
    for name, array in inputs.items():
        binding.bind_cpu_input(name, array)
    for name, array in results.items():
        binding.bind_output(name, "cpu", 0, array.dtype, array.shape, array.ctypes.data)

    def call():
        session.run_with_iobinding(binding)

    return call, lambda: results


serve(prepare)
