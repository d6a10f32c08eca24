"""Run one recorded model in the old package: `run_old.py FOLDER INDEX`. Started by record.py."""

import sys

import numpy as np
import onnxruntime

folder, index = sys.argv[1], sys.argv[2]
session = onnxruntime.InferenceSession(f"{folder}/{index}.onnx", providers=["CPUExecutionProvider"])
inputs = np.load(f"{folder}/{index}.in.npz")
names = [o.name for o in session.get_outputs()]
results = session.run(names, {k: inputs[k] for k in inputs.files})
np.savez(f"{folder}/{index}.out.npz", **dict(zip(names, results)))
