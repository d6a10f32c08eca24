"""In the old package's environment: run models on arrays; `python run_cases.py folder` writes <name>.out.npz."""

import glob
import sys

import numpy as np
import onnxruntime

for path in sorted(glob.glob(sys.argv[1] + "/*.onnx")):
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    found = session.run(None, dict(np.load(path + ".in.npz")))
    np.savez(path + ".out.npz", *found)
