"""onnxgrad.kernels on NumPy arrays, into preallocated results."""

import json

import numpy as np
from protocol import serve

from onnxgrad import kernels
from onnxgrad.contracts import contracts


def prepare(folder, threads):
    line = json.load(open(f"{folder}/line.json"))
    inputs = dict(np.load(f"{folder}/inputs.npz"))
    contract = contracts()[line["op"]]
    kernel = getattr(kernels, contract.python_name)
    kernels.set_num_threads(threads)
    arguments = [inputs.get(t.name) for t in contract.inputs]
    attributes, wanted = line["attributes"], tuple(line["outputs"])
    first = kernel(*arguments, **attributes, outputs=wanted)
    results = dict(zip([t.name for t in contract.outputs], first)) if isinstance(first, tuple) else {wanted[0]: first}
    results = {name: results[name] for name in wanted}
    small = all(a.size <= 64 for a in inputs.values())  # small calls allocate, as a user's would
    out = {} if small else {"out": results if len(contract.outputs) > 1 else results[wanted[0]]}

    def call():
        kernel(*arguments, **attributes, outputs=wanted, **out)

    if len(wanted) == len(contract.outputs):

        def call():
            kernel(*arguments, **attributes, **out)

    return call, lambda: results


serve(prepare)
